"""Launches of a step under CUDA's check that nothing waits for the device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def no_waiting(runner: Any) -> Iterator[None]:
    """Inside, a launch of that runner that waits for the device raises."""
    launch = runner.launch

    def strict(plan: Any) -> Any:
        torch.cuda.set_sync_debug_mode("error")
        try:
            return launch(plan)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    runner.launch = strict
    try:
        yield
    finally:
        del runner.launch  # the class's own again
