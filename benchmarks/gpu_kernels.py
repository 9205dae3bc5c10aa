"""Kernels on a CUDA device against their torch references in float64, with fresh random inputs."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.dit_ends import DitEnds
from benchmarks.other_kernels import OtherKernels
from benchmarks.products.shapes import release_shapes
from benchmarks.products.timing import Inputs, error_limit, relative_error
from voxcpm_core.checkpoint.releases import release_config
from voxcpm_core.config import ModelConfig
from voxcpm_core.kernels.cublaslt import Problem, offered
from voxcpm_core.kernels.layer_ops import TorchLayerOps
from voxcpm_core.kernels.noise import philox_normal
from voxcpm_core.kernels.paged_attention import PagedContext, paged_attention, write_pages
from voxcpm_core.kernels.product_configs import LtConfig, read_table
from voxcpm_core.kernels.rope import rotated_heads
from voxcpm_core.kernels.triton_attention import triton_paged_attention
from voxcpm_core.kernels.triton_decode_attention import decode_attention
from voxcpm_core.kernels.triton_layer_ops import TritonLayerOps, gpu_of
from voxcpm_core.kernels.triton_noise import triton_philox_normal
from voxcpm_core.kernels.triton_products import new_counters
from voxcpm_core.model.rope import RopeTable

CUDA = torch.device("cuda")
PAGE_SIZE, MAX_PAGES = 16, 64
# (batch, query tokens, heads, kv heads, head_dim) of prefilling the released models
ATTENTION_SHAPES = [(1, 300, 16, 2, 128), (2, 45, 16, 2, 64)]
# keys that were there before, of one, five and 64 sequences of a decode step
DECODE_CONTEXTS = [[0], [1], [300], [2000], [0, 1, 300, 2000, 128], [0, 1, 300, 2000] * 16]
DECODE_PAGES, DECODE_REPEATS = 256, 100
LIMITS = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}
OTHERS_LIMIT = 3e-2  # of the largest of millions of bfloat16 values, rounded several times on the way

# (name, value, limit)
Check = Callable[[str, float, float], None]


def check_kernels(check: Check) -> None:
    torch.manual_seed(0)
    _check_noise(check)
    for dtype in LIMITS:
        _check_norm(check, dtype)
    _check_named(check)
    _check_products(check)
    _check_others(check)
    _check_dit(check)
    for shape in ATTENTION_SHAPES:
        for dtype, limit in LIMITS.items():
            name = f"paged attention {shape}, {str(dtype).removeprefix('torch.')}, largest error"
            check(name, _attention_error(*shape, dtype), limit)
    for contexts in DECODE_CONTEXTS:
        for norm_after in (False, True):
            _check_decode(check, contexts, norm_after)


def _check_noise(check: Check) -> None:
    seeds, patches = torch.randint(0, 2**53, (64,), device=CUDA), torch.arange(64, device=CUDA)
    found, expected = (normal(seeds, patches, 256) for normal in (triton_philox_normal, philox_normal))
    check("noise, largest error", float((found - expected).abs().max()), 1e-6)


def _check_norm(check: Check, dtype: torch.dtype) -> None:
    """The norm against the same in torch, which rounds at the same places."""
    ops, dtype_name = TritonLayerOps(CUDA), str(dtype).removeprefix("torch.")
    for rows, hidden in ((1, 2048), (704, 1024), (64, 2048)):
        x, weight = (torch.randn(*shape, device=CUDA, dtype=dtype) for shape in ((rows, hidden), (hidden,)))
        found, expected = ops.norm(x, weight, 1e-5), TorchLayerOps().norm(x, weight, 1e-5)
        error = float(((found - expected).double().abs() / expected.double().abs().clamp(min=1.0)).max())
        check(f"norm [{rows}, {hidden}] {dtype_name}, largest error", error, LIMITS[dtype])


def _check_others(check: Check) -> None:
    """Those between the products, in bfloat16; values above one relative to themselves."""
    for batch in (1, 17, 64):
        for kernel in OtherKernels(batch, CUDA):
            found, expected = kernel.own().double(), kernel.reference().double()
            error = float(((found - expected).abs() / expected.abs().clamp(min=1.0)).max())
            check(f"{kernel.name}, {batch} streams, largest error", error, OTHERS_LIMIT)


def _check_dit(check: Check) -> None:
    """What a stream has before and behind the DiT's blocks does not depend on the others by a bit."""
    ops = TritonLayerOps(CUDA)
    for size in ("0.5", "2"):
        for batch in (3, 64):
            dit = DitEnds.random(ModelConfig.from_json(release_config(size)), batch, CUDA, torch.bfloat16)
            tokens, stepped = dit.tokens(ops), dit.stepped(ops)
            alone = [dit.of(row) for row in range(batch)]
            num_other = sum(not torch.equal(one.tokens(ops), tokens[i::batch]) for i, one in enumerate(alone))
            num_other += sum(not torch.equal(one.stepped(ops), stepped[i : i + 1]) for i, one in enumerate(alone))
            check(f"around the DiT of VoxCPM{size}, {batch} streams, which differ from those alone", num_other, 0)


def _check_named(check: Check) -> None:
    """What the GPU's table names of cuBLASLt is there."""
    missing = 0
    for shape, thresholds in read_table(gpu_of(CUDA)).items():
        for num_rows, config in thresholds:
            dtype = getattr(torch, shape.dtype)
            if isinstance(config, LtConfig):
                missing += config not in offered(Problem(0, num_rows, shape.n, shape.k, dtype))
    check("algorithms of cuBLASLt that the table names and that are not offered", missing, 0)


def _check_products(check: Check) -> None:
    """As the engine has them run, against float64; in float32 and with weights in float8 two, to compile less."""
    ops = TritonLayerOps(CUDA)
    others = release_shapes("float32") | release_shapes(fp8=True)
    shapes = release_shapes() | {
        shape: rows for shape, rows in others.items() if shape.k == 2048 and shape.n != shape.k
    }
    for shape, all_rows in shapes.items():
        inputs, fp8 = Inputs(shape, CUDA, cache_bytes=0), ", weights in float8" * shape.fp8
        for num_rows in (all_rows[0], 33, all_rows[-1]):
            x, residual = inputs.rows(num_rows)
            error = relative_error(inputs, ops, x, residual, inputs.expected(x, residual))
            name = f"{shape.op} [{num_rows}, {shape.k}] x [{shape.n}], {shape.dtype}{fp8}, relative error"
            check(name, error, error_limit(shape, ops._choice(shape, num_rows)))


def _attention_error(
    batch: int, num_tokens: int, heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype
) -> float:
    num_pages = batch * MAX_PAGES
    pages = torch.randn(2, num_pages, PAGE_SIZE, kv_heads, head_dim, device=CUDA, dtype=dtype)
    table = torch.randperm(num_pages, device=CUDA).view(batch, MAX_PAGES)
    last = MAX_PAGES * PAGE_SIZE - num_tokens
    positions = torch.randint(0, last, (batch, 1), device=CUDA) + torch.arange(num_tokens, device=CUDA)
    q = torch.randn(batch, num_tokens, heads, head_dim, device=CUDA, dtype=dtype)
    context = PagedContext(table, positions, MAX_PAGES * PAGE_SIZE, PAGE_SIZE)
    expected = paged_attention(q.double(), pages[0].double(), pages[1].double(), context)
    return float((triton_paged_attention(q, pages[0], pages[1], context).double() - expected).abs().max())


def _check_decode(check: Check, contexts: list[int], norm_after: bool) -> None:
    """A decode step's attention in bfloat16 against float64, and again and again: parts come in another order."""
    lm, batch, eps = ModelConfig.from_json(release_config("2")).base_lm, len(contexts), 1e-5
    num_pages = batch * DECODE_PAGES
    table = torch.randperm(num_pages, device=CUDA).view(batch, DECODE_PAGES)
    positions = torch.tensor(contexts, device=CUDA)[:, None]
    context = PagedContext(table, positions, max(contexts) + 1, PAGE_SIZE)
    shapes = (
        (2, num_pages, PAGE_SIZE, lm.num_kv_heads, lm.head_dim), (batch, 1, lm.q_size + 2 * lm.kv_size),
        (batch, 1, lm.hidden_size),
    )  # fmt: skip
    pages, qkv, x = (torch.randn(*shape, device=CUDA, dtype=torch.bfloat16) for shape in shapes)
    rotation = lm.rope and RopeTable(lm.rope, max(contexts) + 1, CUDA, torch.bfloat16).at(positions)
    scale = torch.rsqrt(x.float().pow(2).mean(dim=-1, keepdim=True) + eps) if norm_after else 1.0
    q, k, v = rotated_heads((qkv.float() * scale).to(qkv.dtype), lm, rotation)
    expected_pages = pages.clone()
    write_pages(expected_pages[0], k, context)
    write_pages(expected_pages[1], v, context)
    expected = paged_attention(q.double(), expected_pages[0].double(), expected_pages[1].double(), context).flatten(-2)
    counters, num_processors = new_counters(CUDA), torch.cuda.get_device_properties(CUDA).multi_processor_count
    results = [
        decode_attention(
            qkv, x if norm_after else None, eps, lm, rotation, pages, context, counters, num_processors
        )
        for _ in range(DECODE_REPEATS)
    ]  # fmt: skip
    name = f"decode attention after {contexts[:5]} keys, {batch} rows, norm {'after' if norm_after else 'before'}"
    # Relative for large values: keys and values may round to a neighbour.
    for what, found, right in (("", results[0], expected), (" of the pages", pages, expected_pages)):
        error = float(((found.double() - right.double()).abs() / right.double().abs().clamp(min=1.0)).max())
        check(f"{name}, largest error{what}", error, LIMITS[torch.bfloat16])
    check(f"{name}, repeats that differ", sum(not torch.equal(results[0], other) for other in results), 0)
    check(f"{name}, counters left over", int(counters.count_nonzero()), 0)
