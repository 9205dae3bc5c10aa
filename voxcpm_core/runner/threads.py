"""How many of a CPU's threads a small product is worth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

# Of the residual stream, in one product. With less, threads wait for each other longer than they work, on cores that
# the server and its clients want. Found with the demo checkpoint: one stream is below, four gain from two threads.
MIN_SHARED_VALUES = 1024


@contextmanager
def threads_for(num_values: int, device: torch.device) -> Iterator[None]:
    """One thread where `num_values` are too few to share, and all otherwise; sums of two threads come out alike."""
    num_threads = torch.get_num_threads()
    if device.type != "cpu" or num_values >= MIN_SHARED_VALUES or num_threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)
