"""What one request adds to the metrics, for every way in which it can end."""

from __future__ import annotations

import pytest

from voxcpm_core.errors import ErrorCode
from voxcpm_core.metrics import catalog
from voxcpm_core.metrics.catalog import Metric
from voxcpm_core.metrics.request import RequestMeter


class Watched:
    """A meter on a clock that the test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.records: list[tuple[Metric, float, str]] = []
        self.num_ends = 0
        self.meter = RequestMeter(self._record, self._ended, lambda: self.now_s)

    def _record(self, metric: Metric, value: float = 1.0, label_value: str = "") -> None:
        self.records.append((metric, value, label_value))

    def _ended(self) -> None:
        self.num_ends += 1

    def values(self, metric: Metric) -> list[float]:
        return [pytest.approx(value) for each, value, _ in self.records if each is metric]

    def labels(self, metric: Metric) -> list[str]:
        return [label for each, _, label in self.records if each is metric]

    def admit_after(self, seconds: float) -> None:
        self.now_s += seconds
        self.meter.admitted()

    def send_after(self, seconds: float, audio_s: float, is_streamed: bool = True) -> None:
        self.now_s += seconds
        self.meter.sent(audio_s, is_streamed)


def test_a_stream_with_three_chunks():
    watched = Watched()
    watched.admit_after(0.5)
    for seconds, audio_s in ((0.5, 0.2), (0.1, 0.2), (0.3, 0.4)):
        watched.send_after(seconds, audio_s)
    watched.now_s += 7.0  # FINAL is not what a listener waits for
    watched.meter.finished("stop")
    assert watched.values(catalog.RECEIVED) == watched.values(catalog.ADMITTED) == [1]
    assert watched.values(catalog.QUEUE_WAIT) == [0.5]
    assert watched.values(catalog.TTFA) == [1.0]
    assert watched.values(catalog.GAP) == [0.1, 0.3]
    assert sum(each.expected for each in watched.values(catalog.AUDIO)) == pytest.approx(0.8)
    assert watched.values(catalog.DURATION) == [1.4]
    assert watched.values(catalog.REAL_TIME) == [1.4 / 0.8]
    assert watched.labels(catalog.FINISHED) == ["stop"]
    assert watched.num_ends == 1


def test_an_answer_in_one_piece_has_no_first_audio():
    watched = Watched()
    watched.admit_after(0.1)
    watched.send_after(2.0, 4.0, is_streamed=False)
    watched.meter.finished("length")
    assert watched.values(catalog.TTFA) == watched.values(catalog.GAP) == []
    assert watched.values(catalog.REAL_TIME) == [2.1 / 4.0]


def test_latents_alone_have_no_real_time_factor():
    watched = Watched()
    watched.admit_after(0.0)
    for _ in range(2):
        watched.send_after(1.0, 0.0)
    watched.meter.finished("stop")
    assert watched.values(catalog.TTFA) == watched.values(catalog.REAL_TIME) == watched.values(catalog.AUDIO) == []
    assert watched.values(catalog.GAP) == [1.0]
    assert watched.values(catalog.DURATION) == [2.0]


def test_further_attempts_are_not_admitted_again():
    watched = Watched()
    for _ in range(3):
        watched.admit_after(1.0)
    assert watched.values(catalog.QUEUE_WAIT) == [1.0]
    assert watched.values(catalog.ADMITTED) == [1]


@pytest.mark.parametrize("code", list(ErrorCode))
@pytest.mark.parametrize("is_admitted", [False, True])
def test_errors(code: ErrorCode, is_admitted: bool):
    watched = Watched()
    if is_admitted:
        watched.admit_after(0.0)
    watched.meter.failed(code)
    if code is ErrorCode.CANCELLED:
        expected = catalog.CANCELLED
    elif is_admitted or code in (ErrorCode.INTERNAL, ErrorCode.DEADLINE_EXCEEDED):
        expected = catalog.FAILED
    else:
        expected = catalog.REJECTED
    endings = (catalog.FINISHED, catalog.CANCELLED, catalog.FAILED, catalog.REJECTED)
    assert [metric for metric in endings if watched.values(metric)] == [expected]
    assert watched.labels(expected) == [code.value if expected.label else ""]
    assert watched.num_ends == 1
    assert watched.values(catalog.DURATION) == []
