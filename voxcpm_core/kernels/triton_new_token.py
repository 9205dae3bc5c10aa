"""The row of a sequence's new token in a decode step, as a kernel of Triton begins with it: norm and rope."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _prepared(value, partner, cos, sin, inverse, NORM: tl.constexpr, ROPE: tl.constexpr):
    """Scaled by the norm and turned, each rounded; partner: of the other half; sin: negative in the first half."""
    if NORM:
        value = (value.to(tl.float32) * inverse).to(value.dtype)
        partner = (partner.to(tl.float32) * inverse).to(value.dtype)
    if ROPE:
        value = (value.to(tl.float32) * cos + partner.to(tl.float32) * sin).to(value.dtype)
    return value


@triton.jit
def new_token(
    row_ptr, x_ptr, cos_ptr, sin_ptr, queries_at, key_at, is_row, eps,
    KV_SIZE: tl.constexpr, DIM: tl.constexpr, HIDDEN: tl.constexpr, WIDTH: tl.constexpr, ROPE: tl.constexpr,
):  # fmt: skip
    """Queries, key and value, all as [rows, DIM], the latter in each row, which costs less than other layouts would.

    All is asked for before anything is used.
    """
    NORM: tl.constexpr = HIDDEN > 0
    dims = tl.arange(0, DIM)[None, :]
    everywhere = tl.zeros_like(queries_at)[:, None] + dims
    partner = (everywhere + DIM // 2) % DIM
    x, inverse, cos, sin = 0.0, 1.0, 1.0, 0.0
    if NORM:
        x = tl.load(x_ptr + tl.arange(0, WIDTH), mask=tl.arange(0, WIDTH) < HIDDEN, other=0.0)
    q_ptr, k_ptr = row_ptr + queries_at[:, None], row_ptr + key_at
    q = tl.load(q_ptr + dims, mask=is_row[:, None], other=0.0)
    k, v = tl.load(k_ptr + everywhere), tl.load(k_ptr + KV_SIZE + everywhere)
    q_partner, k_partner = q, k
    if ROPE:
        q_partner = tl.load(q_ptr + partner, mask=is_row[:, None], other=0.0)
        k_partner = tl.load(k_ptr + partner)
        cos, sin = tl.load(cos_ptr + everywhere).to(tl.float32), tl.load(sin_ptr + everywhere).to(tl.float32)
        sin = tl.where(dims < DIM // 2, -sin, sin)
    if NORM:
        wide = x.to(tl.float32)
        inverse = tl.rsqrt(tl.sum(wide * wide, axis=0) / HIDDEN + eps)
    q = _prepared(q, q_partner, cos, sin, inverse, NORM, ROPE)
    return q, _prepared(k, k_partner, cos, sin, inverse, NORM, ROPE), _prepared(v, v, cos, sin, inverse, NORM, False)
