"""When the requests of a load are due, and which process sends which."""

from __future__ import annotations

import math
from itertools import islice, pairwise

import numpy as np
import pytest

from voxcpm_client.load.asking import Script
from voxcpm_client.load.patterns import Arrivals, Clients, parse_ramp
from voxcpm_client.load.plan import Limits, make_shares
from voxcpm_client.load.share import ClosedShare, OpenShare
from voxcpm_client.load.texts import SENTENCES, read_texts

SCRIPT = Script("localhost:8001", "voxcpm", 10.0, ("one", "two"), {"max_length": 4}, seed=3)


def test_arrivals_at_a_rate_are_poisson() -> None:
    times_s = list(islice(Arrivals(4.0, 4.0).times_s(seed=1), 4000))
    gaps_s = np.diff(times_s)
    assert times_s[-1] == pytest.approx(1000, rel=0.05)
    assert gaps_s.std() == pytest.approx(gaps_s.mean(), rel=0.05), "of exponential gaps"
    counts = np.bincount(np.array(times_s, int))
    assert counts.var() == pytest.approx(counts.mean(), rel=0.15), "of Poisson counts"


def test_the_seed_decides_the_arrivals() -> None:
    first, same, other = (list(islice(Arrivals(1.0, 1.0).times_s(seed), 20)) for seed in (5, 5, 6))
    assert first == same != other


@pytest.mark.parametrize(("start", "end"), [(0, 20), (20, 0), (1, 10), (10, 1)])
def test_a_ramp_changes_its_rate_evenly(start: float, end: float) -> None:
    times_s = np.array(list(Arrivals(start, end, over_s=400).times_s(seed=2)))
    assert all(before < after for before, after in pairwise(times_s))
    assert times_s[-1] <= 400
    counts, _ = np.histogram(times_s, bins=4, range=(0, 400))
    middles = start + (end - start) * (np.arange(4) + 0.5) / 4
    np.testing.assert_allclose(counts, 100 * middles, rtol=0.2, atol=3 * math.sqrt(100))


def test_a_ramp_as_text() -> None:
    assert parse_ramp("1:10:60") == Arrivals(1.0, 10.0, 60.0)
    for wrong in ("1:10", "1:10:60:2", "a:b:c", "-1:2:3", "1:2:0", "0:0:5", "nan:1:5", "1:inf:5", "1:2:inf"):
        with pytest.raises(ValueError, match="ramp|rate"):
            parse_ramp(wrong)


def test_a_rate_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match="number of requests or a duration"):
        make_shares(SCRIPT, Arrivals(1.0, 1.0), Limits(), 1, begin_s=0.0, seed=0)


@pytest.mark.parametrize("num_processes", [1, 3, 8])
def test_shares_of_clients_are_all_of_them(num_processes: int) -> None:
    shares = make_shares(SCRIPT, Clients(5), Limits(17), num_processes, begin_s=1.0, seed=0)
    assert len(shares) == min(5, num_processes)
    assert all(isinstance(share, ClosedShare) for share in shares)
    assert sorted(client for share in shares for client in share.clients) == list(range(5))
    assert sorted(index for share in shares for index in share.indices) == list(range(17))


def test_shares_of_arrivals_are_all_of_them() -> None:
    (alone,) = make_shares(SCRIPT, Arrivals(9.0, 9.0), Limits(100, duration_s=5.0), 1, begin_s=100.0, seed=7)
    shares = make_shares(SCRIPT, Arrivals(9.0, 9.0), Limits(100, duration_s=5.0), 3, begin_s=100.0, seed=7)
    assert isinstance(alone, OpenShare)
    assert 20 < len(alone.indices) < 80
    assert 100 < alone.due_s[0] < alone.due_s[-1] <= 105
    together = sorted(pair for share in shares for pair in zip(share.indices, share.due_s, strict=True))
    assert together == list(zip(alone.indices, alone.due_s, strict=True))


def test_requests_differ_in_text_and_seed_and_come_again() -> None:
    requests = [SCRIPT.request(index) for index in range(3)]
    raw = [dict(zip((i.name for i in r.inputs), r.raw_input_contents, strict=True)) for r in requests]
    assert [each["target_text"][4:] for each in raw] == [b"one", b"two", b"one"]
    assert [int.from_bytes(each["seed"], "little") for each in raw] == [3, 4, 5]
    assert SCRIPT.request(1) == requests[1]


def test_limits_must_be_positive() -> None:
    for wrong in ({"num_requests": 0}, {"duration_s": 0.0}, {"duration_s": math.nan}):
        with pytest.raises(ValueError, match="requests|duration"):
            Limits(**wrong)


def test_texts(tmp_path) -> None:
    lengths = sorted(map(len, SENTENCES))
    assert lengths[0] < 20
    assert lengths[-1] > 120
    file = tmp_path / "texts.txt"
    file.write_text("One.\n\n  Two. \n", encoding="utf-8-sig")
    assert read_texts(file) == ("One.", "Two.")
    file.write_text(" \n")
    with pytest.raises(ValueError, match=r"texts\.txt: no texts"):
        read_texts(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="not UTF-8"):
        read_texts(file)
