"""What may not change a bit on a CUDA device, since the same rows meet the same kernels: part of `gpu_check`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from tests.engine.harness import SMALL, Harness, Received
from tests.engine.requests import crowd
from voxcpm_core.runner import evaluations, graphs, prefill_graphs

CROWD_SIZE = 16

Check = Callable[[str, float, float], None]  # name, value, limit
Distance = Callable[[list[Received], list[Received]], float]


class LaunchedAgain:
    """In the place of a `Replay`: the work is launched kernel by kernel each time, on the same memory."""

    def __init__(self, work: Callable[[], None], pool: Any = None, yields: bool = False) -> None:
        self.launch = work
        work()


@contextmanager
def _not_recorded() -> Iterator[None]:
    """Engines built inside have no graphs, but all else that graphs have."""
    modules = (evaluations, graphs, prefill_graphs)
    usual = graphs.Replay
    for module in modules:
        module.Replay = LaunchedAgain  # type: ignore[misc, assignment]
    try:
        yield
    finally:
        for module in modules:
            module.Replay = usual  # type: ignore[misc]


def check_exact(check: Check, distance: Distance, name: str, folder: Path, reference: bool) -> None:
    """Graphs = the same work launched eagerly = in lock-step, bit for bit.

    Each crowd runs twice and counts the second time: what is encoded and cached the first time makes newcomers join
    later, with longer prefixes.
    """
    usual = _second_run(Harness(folder, SMALL, device=torch.device("cuda")), reference)
    lock_step = dataclasses.replace(SMALL, run_ahead="off")
    alike = _second_run(Harness(folder, lock_step, device=torch.device("cuda")), reference)
    check(f"{name} lock-step against run-ahead, graphs, largest difference", distance(alike, usual), 0)
    with _not_recorded():
        eager = _second_run(Harness(folder, SMALL, device=torch.device("cuda")), reference)
    check(f"{name} graphs against their work launched eagerly, largest difference", distance(usual, eager), 0)


def _second_run(harness: Harness, reference: bool) -> list[Received]:
    harness.core.runner.capture()
    requests = crowd(CROWD_SIZE, reference)
    harness.run_staggered(requests, 0)
    return harness.run_staggered(requests, 0)
