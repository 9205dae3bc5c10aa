"""What is recorded reaches Triton once, and a Triton that refuses harms nobody."""

from __future__ import annotations

import gc

import pytest

from tests.serving.fake_metrics import FakeMetrics
from tests.serving.fake_triton import FakeBackend
from voxcpm_core.metrics import catalog
from voxcpm_core.metrics.board import Board

LABELS = {"model": "voxcpm"}


class Told:
    def __init__(self, **options: bool) -> None:
        self.server = FakeMetrics(**options)
        self.lines: list[str] = []
        self.board = Board(FakeBackend(self.server), LABELS, self.lines.append)


def test_nothing_is_told_before_flush_and_nothing_twice():
    told = Told()
    for amount in (1.5, 2.0):
        told.board.record(catalog.AUDIO, amount)
    assert told.server.value("voxcpm_audio_seconds_total") == 0
    told.board.flush()
    told.board.flush()
    assert told.server.value("voxcpm_audio_seconds_total", model="voxcpm") == 3.5
    assert told.server.num_calls == 1


def test_a_gauge_is_told_when_it_changes():
    told = Told()
    for levels in ([3, 4], [4], [4], [2]):
        for level in levels:
            told.board.record(catalog.RUNNING, level)
        told.board.flush()
    assert told.server.value("voxcpm_running_requests") == 2
    assert told.server.num_calls == 2


def test_a_histogram_gets_each_observation():
    told = Told()
    for value in (0.1, 0.3):
        told.board.record(catalog.GAP, value)
    told.board.flush()
    assert told.server.observations("voxcpm_chunk_gap_seconds") == [0.1, 0.3]


def test_without_histograms_there_are_sums_and_counts():
    told = Told(has_histograms=False)
    assert set(told.server.kinds.values()) == {"counter", "gauge"}
    for value in (0.1, 0.3):
        told.board.record(catalog.GAP, value)
    told.board.flush()
    assert told.server.value("voxcpm_chunk_gap_seconds_sum") == pytest.approx(0.4)
    assert told.server.value("voxcpm_chunk_gap_seconds_count") == 2


def test_every_series_that_is_known_is_there_from_the_start():
    told = Told()
    names = {name for name, _ in [*told.server.values, *told.server.observed]}
    assert names == {metric.name for metric in catalog.METRICS}
    assert told.server.value("voxcpm_requests_rejected_total", code="INVALID_TEXT") == 0


def test_a_label_that_nobody_thought_of():
    told = Told()
    told.board.record(catalog.FAILED, label_value="TOO_LARGE")
    told.board.flush()
    assert told.server.value("voxcpm_requests_failed_total", code="TOO_LARGE", model="voxcpm") == 1


def test_a_server_that_refuses_is_logged_once_and_may_come_back():
    told = Told()
    told.server.fails = True
    for _ in range(3):
        told.board.record(catalog.AUDIO)
        told.board.record(catalog.GAP)
        told.board.flush()
    (line,) = told.lines
    assert "voxcpm_audio_seconds_total" in line
    assert "RuntimeError" in line
    assert "SECRET" not in line
    told.server.fails = False
    told.board.record(catalog.AUDIO)
    told.board.flush()
    assert told.server.value("voxcpm_audio_seconds_total") == 1


def test_close_takes_all_series_back_and_the_next_load_may_use_the_names():
    told = Told()
    told.board.record(catalog.GAP)
    told.board.flush()
    told.board.close()
    gc.collect()
    assert (told.server.values, told.server.observed) == ({}, {})
    Board(FakeBackend(told.server), LABELS, told.lines.append).close()
    assert told.server.violations == []


def test_metrics_that_are_off_are_no_board():
    with pytest.raises(RuntimeError):
        Told(is_off=True)
