"""The figures of a load, on requests made up for the purpose."""

from __future__ import annotations

import json

import pytest

from voxcpm_client.errors import InternalError, Overloaded, VoxError
from voxcpm_client.load import table
from voxcpm_client.load.outcome import Outcome
from voxcpm_client.load.patterns import Arrivals, Clients
from voxcpm_client.load.row import make_row, spread


def outcome(client=0, sent_s=0.0, chunks=((1.0, 2.0), (2.0, 2.0)), due_s=None, error=None, ended_s=None) -> Outcome:
    """`chunks` are pairs of arrival and duration."""
    arrived_s, durations_s = zip(*chunks, strict=True) if chunks else ((), ())
    ended_s = arrived_s[-1] if ended_s is None else ended_s
    return Outcome(client, due_s, sent_s, ended_s, tuple(arrived_s), tuple(durations_s), error)


def test_figures_of_a_request() -> None:
    heard = outcome(sent_s=10.0, chunks=((10.5, 1.0), (11.0, 1.0), (12.25, 2.0)))
    assert heard.ttfa_ms == pytest.approx(500)
    assert heard.gaps_ms == pytest.approx((500, 1250))
    assert heard.audio_s == 4.0
    assert heard.rtf == pytest.approx(2.25 / 4)
    assert heard.code == ""
    silent = outcome(chunks=(), error=VoxError("Triton's own"), ended_s=1.0)
    assert (silent.ttfa_ms, silent.rtf, silent.gaps_ms, silent.code) == (None, None, (), "NO_CODE")


@pytest.mark.parametrize(
    ("chunks", "underruns"),
    [
        (((1.0, 1.0), (2.0, 1.0), (3.0, 1.0)), 0),  # just in time
        (((1.0, 1.0), (2.1, 1.0), (3.0, 1.0)), 1),  # the late one delays those after it, which then are in time
        (((1.0, 1.0), (2.5, 1.0), (3.6, 1.0)), 2),
        (((1.0, 3.0), (3.9, 1.0), (4.9, 1.0)), 0),  # what was in hand covers the long gap
        (((1.0, 1.0),), 0),
    ],
)
def test_underruns_of_a_player_that_starts_with_the_first_chunk(chunks, underruns) -> None:
    assert outcome(chunks=chunks).num_underruns == underruns


def test_percentiles_are_interpolated() -> None:
    figures = spread(float(value) for value in range(101))
    assert figures is not None
    assert (figures.p50, figures.p90, figures.p99, figures.largest) == (50, 90, 99, 100)
    pair = spread([1.0, None, 3.0])
    assert pair is not None
    assert (pair.p50, pair.p90, pair.largest) == pytest.approx((2.0, 2.8, 3.0))
    assert spread([None]) is None


def test_closed_loop_speech_per_second_is_that_of_all_clients_at_work() -> None:
    outcomes = [
        outcome(0, 0.0, ((1.0, 1.0), (3.0, 1.0))),
        outcome(1, 0.0, ((2.0, 1.0), (4.0, 1.0))),  # from 2 s on both speak
        outcome(0, 3.0, ((5.0, 1.0), (6.0, 3.0))),  # from 6 s on the first has nothing to do
        outcome(1, 4.0, ((7.0, 1.0), (9.0, 1.0))),
    ]
    row = make_row(Clients(2), 0.0, outcomes, 0, 1.0)
    assert row.window is not None
    assert (row.window.begin_s, row.window.end_s, row.window.is_steady) == (2.0, 6.0, True)
    assert row.audio_s_per_s == pytest.approx((1 + 1 + 1 + 3) / 4)
    assert row.requests_per_s == pytest.approx(3 / 4)


def test_a_closed_loop_without_a_steady_time() -> None:
    row = make_row(Clients(2), 0.0, [outcome(0, 0.0, ((1.0, 1.0),)), outcome(1, 0.0, ((2.0, 1.0),))], 0, 1.0)
    assert row.window is not None
    assert not row.window.is_steady
    assert row.audio_s_per_s == pytest.approx(1.0)
    assert "too short for a steady state" in table.text_of(row)


def test_an_open_loop_shows_how_late_it_sent() -> None:
    outcomes = [outcome(n, n + 0.001 * n, ((n + 1.0, 1.0),), due_s=float(n)) for n in range(4)]
    row = make_row(Arrivals(1.0, 1.0), 0.0, outcomes, 0, 1.0)
    assert row.lag_ms is not None
    assert row.lag_ms.largest == pytest.approx(3.0)
    assert row.window is not None
    assert (row.window.begin_s, row.window.end_s) == (1.0, pytest.approx(3.003))
    assert row.audio_s_per_s == pytest.approx(2 / 2.003)
    assert make_row(Clients(1), 0.0, [outcome()], 0, 1.0).lag_ms is None


def test_an_open_loop_whose_steady_time_is_a_moment() -> None:
    """No audio may come in it at all, though much does before and after."""
    outcomes = [outcome(n, n / 10, ((n / 10 + 1.0, 1.0), (n / 10 + 1.88, 1.0)), due_s=n / 10) for n in range(20)]
    row = make_row(Arrivals(10.0, 10.0), 0.0, outcomes, 0, 1.0)
    assert row.window is not None
    assert not row.window.is_steady
    assert row.audio_s_per_s == pytest.approx(40 / 3.78)


def test_errors_are_counted_by_code_and_leave_the_figures_alone() -> None:
    outcomes = [
        outcome(0),
        outcome(1, chunks=((9.0, 1.0),), error=InternalError("late")),
        outcome(2, chunks=(), error=Overloaded("full"), ended_s=0.1),
        outcome(3, chunks=(), error=Overloaded("full"), ended_s=0.1),
    ]
    row = make_row(Clients(4), 0.0, outcomes, 2, 1.0)
    assert row.errors == {"INTERNAL": 1, "OVERLOADED": 2}
    assert row.num_ok == 1
    assert row.ttfa_ms is not None
    assert row.ttfa_ms.largest == pytest.approx(1000)
    printed = table.text_of(row)
    for words in ("OVERLOADED 2", "INTERNAL 1", "stopped while 2 more requests"):
        assert words in printed


def test_nothing_heard_at_all() -> None:
    row = make_row(Clients(1), 0.0, [], 1, 0.0)
    assert (row.window, row.audio_s_per_s, row.ttfa_ms) == (None, 0.0, None)
    assert "stopped while 1" in table.text_of(row)


def test_the_names_in_the_json() -> None:
    """Those who read reports rely on them: a change needs a new `schema`."""
    row = make_row(Arrivals(1.0, 2.0, 5.0), 0.0, [outcome(due_s=0.0)], 0, 1.0).as_json()
    assert list(json.loads(json.dumps(row))) == [
        "load", "n", "ok", "errors", "unfinished", "ttfa_ms", "gap_ms", "rtf", "lag_ms", "underruns", "audio_s",
        "audio_s_per_s", "requests_per_s", "window_s", "window_is_steady", "generator_cpu_pct", "requests",
    ]  # fmt: skip
    assert list(row["ttfa_ms"]) == ["p50", "p90", "p99", "largest"]
    assert list(row["requests"][0]) == [
        "client", "due_s", "sent_s", "ended_s", "code", "ttfa_ms", "largest_gap_ms", "underruns", "audio_s", "rtf",
    ]  # fmt: skip
    assert row["load"] == {"kind": "ramp", "from_per_s": 1.0, "to_per_s": 2.0, "over_s": 5.0}
    assert Clients(3).as_json() == {"kind": "closed", "clients": 3, "begin_over_s": 0.0}
    assert Arrivals(2.5, 2.5).as_json() == {"kind": "open", "rate_per_s": 2.5}
