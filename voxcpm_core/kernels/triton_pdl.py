"""Programmatic dependent launch: the start of a kernel overlaps the end of the one before it (Hopper and later).

A kernel launched with it may begin while earlier ones still run, so it touches no memory that they write before it has
waited for them; that wait is for all of them, since each has waited likewise.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl

LINE_BYTES = 128  # what one prefetch brings
FEW_ROWS = 48  # with more it costs time: on an H200 2 % of a step of 16 streams


@triton.jit
def grid_control(ACTION: tl.constexpr):
    """`launch_dependents`: the next kernel may start; `wait`: for the one before. Triton 3.4's own do not compile."""
    asm: tl.constexpr = "griddepcontrol." + ACTION + "; mov.b32 $0, 0;"
    tl.inline_asm_elementwise(asm, "=r", [], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def begin(PDL: tl.constexpr):
    """What a kernel that prepares nothing begins with."""
    if PDL:
        grid_control("launch_dependents")
        grid_control("wait")


@triton.jit
def prefetch(weight_ptr, num_columns, first, last, K: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
             LINE: tl.constexpr):  # fmt: skip
    """Ask the L2 cache for what a program will read of W [num_columns, K], which no kernel writes: before the wait."""
    row = tl.minimum(tl.arange(0, BLOCK_N), num_columns - 1)
    for start in range(first, last, BLOCK_K):
        at = tl.minimum(start + tl.arange(0, BLOCK_K // LINE) * LINE, K - 1)
        address = (weight_ptr + (row[:, None] * K + at[None, :])).to(tl.uint64)
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l", [address], dtype=tl.int32, is_pure=False, pack=1
        )


def dependent(device: torch.device, num_rows: int) -> dict[str, Any]:
    """Arguments of a launch, for so many rows, of a kernel whose PDL says whether it is to control the grid."""
    if num_rows <= FEW_ROWS and _has_pdl(device):
        return {"PDL": True, "launch_pdl": True}
    return {"PDL": False}


@cache
def _has_pdl(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
