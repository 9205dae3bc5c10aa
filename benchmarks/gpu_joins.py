"""Joins and leaves while others run, on a CUDA device: part of `gpu_check`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.strict_launch import no_waiting
from tests.engine.harness import SMALL, Harness, Received
from tests.engine.requests import crowd

CROWD_SIZE = 16
STEPS_BETWEEN = 2

LATE_CYCLES = 20_000_000  # about 10 ms, several steps of a tiny model

Check = Callable[[str, float, float], None]  # name, value, limit
Distance = Callable[[list[Received], list[Received]], float]


def check_joins(check: Check, distance: Distance, name: str, folder: Path, reference: bool) -> None:
    """No launch of a step may wait for the device, only collecting one does; and audio may come late."""
    harness = Harness(folder, SMALL, device=torch.device("cuda"))
    runner = harness.core.runner
    runner.capture()
    requests = crowd(CROWD_SIZE, reference)
    harness.run_staggered(requests, STEPS_BETWEEN)  # makes pinned memory, encodes audio
    expected = harness.run_staggered(requests, STEPS_BETWEEN)
    with no_waiting(runner):
        again = harness.run_staggered(requests, STEPS_BETWEEN)
    check(f"{name} streams hurt by a launch that waits", sum(one.error_code is not None for one in again), 0)
    lengths = [(len(one.patches), len(other.patches)) for one, other in zip(expected, again, strict=True)]
    check(f"{name} streams of another length", sum(one != other for one, other in lengths), 0)
    ahead = harness.run_staggered(requests, STEPS_BETWEEN, admits=True)
    check(f"{name} texts prefilled beside steps, largest difference", distance(ahead, expected), 1e-4)
    stepper = runner.graphs.stepper
    for replay in stepper._audios.values():
        replay.launch = _late(replay.launch)
    late = harness.run_staggered(requests, STEPS_BETWEEN)
    check(f"{name} audio that comes late, largest difference", distance(late, expected), 0)


def _late(launch: Callable[[], None]) -> Callable[[], None]:
    def launch_late() -> None:
        torch.cuda._sleep(LATE_CYCLES)
        launch()

    return launch_late
