"""A barrier for all programs of a kernel, which must then all run at the same time: launch it with `COOPERATIVE`.

A kernel whose programs are on the device together may go through several phases without ending in between. The driver
refuses a cooperative launch of more programs than fit, and starts none of them before there is room for all: beside
other kernels the grid waits, and cannot wait for ever.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

COOPERATIVE: dict[str, Any] = {"launch_cooperative_grid": True}  # an argument of the launch
MIN_CAPABILITY = (9, 0)  # of kernels that count on it


@triton.jit
def _seen(counter_ptr):
    """The counter, as it is in the L2 cache. What others stored before they changed it can be read from then on."""
    address = counter_ptr.to(tl.uint64)
    return tl.inline_asm_elementwise(
        "ld.acquire.gpu.global.s32 $0, [$1];", "=r,l", [address], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def arrive(counter_ptr):
    """Make what this program stored visible to all, and count it in. Returns what `wait` wants to know."""
    tl.debug_barrier()  # all threads' stores come before the count, which one thread does
    # Together all programs add 2 ** 31: the sign flips when the last one arrives, and no one need ever reset it.
    others = tl.num_programs(0) - 1
    added = tl.where(tl.program_id(0) == 0, 0x7FFFFFFF - others + 1, 1)
    return tl.atomic_add(counter_ptr, added, sem="acq_rel")


@triton.jit
def wait(counter_ptr, before):
    """Until all programs have arrived. Each thread looks for itself, so that each one's cache forgets what is old."""
    seen = _seen(counter_ptr)
    while (seen ^ before) >= 0:
        seen = _seen(counter_ptr)
    tl.debug_barrier()


@triton.jit
def meet(counter_ptr, ALONE: tl.constexpr):
    """ALONE: in a grid of one program."""
    if not ALONE:
        wait(counter_ptr, arrive(counter_ptr))


def new_barrier(device: torch.device) -> Tensor:
    """A counter. Kernels that may run at the same time must not share it."""
    return torch.zeros(1, dtype=torch.int32, device=device)
