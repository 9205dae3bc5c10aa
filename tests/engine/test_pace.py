"""A step is launched late enough for newcomers, and in time for the device."""

from __future__ import annotations

import threading

import pytest

from voxcpm_core.engine.loop import EngineLoop
from voxcpm_core.engine.pace import MIN_MARGIN_S, NUM_REMEMBERED, Pace

LAUNCH_S, GENEROUS_S = 0.0005, 30.0
MARGIN_S = MIN_MARGIN_S + 2 * LAUNCH_S


def run(pace: Pace, durations_s: list[float], start_s: float = 100.0) -> tuple[float, float]:
    """Steps of a device that is served at the pace; returns when the last began, and how long the device waited."""
    ends_s, idle_s = start_s, 0.0
    pace.collected(start_s, next_in_flight=True)
    for duration_s in durations_s:
        began_s = ends_s
        ready_s = began_s + pace.slack_s(began_s) + LAUNCH_S  # the next launch is done
        ends_s = began_s + duration_s
        pace.launched(LAUNCH_S, was_late=ready_s > ends_s)
        idle_s += max(0.0, ready_s - ends_s)
        ends_s = max(ends_s, ready_s)
        pace.collected(ends_s, next_in_flight=True)
    return ends_s, idle_s


def test_nothing_waits_before_a_step_is_known():
    pace = Pace()
    assert pace.slack_s(5.0) == 0.0
    pace.collected(5.0, next_in_flight=True)
    assert pace.slack_s(5.0) == 0.0
    pace.launched(LAUNCH_S, was_late=False)
    pace.collected(5.010, next_in_flight=False)
    assert pace.slack_s(5.010) == 0.0, "no step is in flight"


def test_a_launch_waits_until_shortly_before_the_end():
    pace = Pace()
    now_s, idle_s = run(pace, [0.010] * 20)
    assert idle_s == 0.0
    assert pace.slack_s(now_s) == pytest.approx(0.010 - MARGIN_S)
    assert pace.slack_s(now_s + 0.006) == pytest.approx(0.004 - MARGIN_S)
    assert pace.slack_s(now_s + 0.010) == 0.0


def test_longer_steps_now_and_then_delay_nothing():
    """Newcomers' prefixes: what follows must not be launched as late."""
    _, idle_s = run(Pace(), [0.010, 0.010, 0.013] * 10)
    assert idle_s == 0.0


def test_shorter_steps_cost_the_device_one_step_and_no_more():
    _, idle_s = run(Pace(), [0.015] * 20 + [0.004] * 200)
    assert idle_s == pytest.approx(0.015 - MARGIN_S + LAUNCH_S - 0.004)


def test_a_launch_that_takes_long_is_given_more_time():
    pace = Pace()
    run(pace, [0.010] * 3)
    pace.launched(0.006, was_late=False)
    assert pace.slack_s(100.030) == 0.0
    run(pace, [0.010] * NUM_REMEMBERED, start_s=200.0)
    assert pace.slack_s(200.080) > 0.0


class Core:
    """Has work once somebody was added; its first step can wait for long."""

    def __init__(self) -> None:
        self.added: list[int] = []
        self.admitted: list[int] = []  # how many were there each time that newcomers could be taken in
        self.steps: list[int] = []  # likewise
        self.stepped = threading.Event()
        self.waits = threading.Event()

    keeps_voices = False
    has_work = property(lambda self: bool(self.added) and not self.steps)

    def add(self, stream_id: int, request: object) -> None:
        self.added.append(stream_id)

    def admit(self) -> None:
        self.admitted.append(len(self.added))

    def slack_s(self) -> float:
        self.waits.set()
        return 0.0 if len(self.added) == 2 else GENEROUS_S

    def step(self) -> None:
        self.steps.append(len(self.added))
        self.stepped.set()

    def take_events(self) -> list[object]:
        return []

    def fail_all(self, error: Exception) -> None:
        """Nobody is left."""


def test_who_comes_while_a_launch_can_wait_is_in_it():
    core = Core()
    loop = EngineLoop(core, lambda events: None)
    loop.add(0, None)
    assert core.waits.wait(GENEROUS_S)
    loop.add(1, None)
    assert core.stepped.wait(GENEROUS_S / 2)
    loop.close()
    assert core.steps == [2]
    assert core.admitted == [1], "the last one came when there was no more time, and goes into the step itself"
