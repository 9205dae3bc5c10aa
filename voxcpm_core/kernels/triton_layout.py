"""Where Triton lays values out."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def settled(x, COMPILED: tl.constexpr):
    """x as it is; of 16 or 32 bits. COMPILED: not interpreted.

    An operand of a product in registers has a layout of the product's. Triton would bring all that it is made of into
    that layout, load after load, each waiting for the one before; behind this it brings the result alone.
    """
    if COMPILED:
        if x.dtype.primitive_bitwidth == 32:
            x = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=False, pack=1)
        else:
            x = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=False, pack=2)
    return x
