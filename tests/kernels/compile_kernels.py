"""Compile every Triton kernel for a compute capability; no GPU is needed.

Run: python -m tests.kernels.compile_kernels 90 [--all]. Prints a JSON object of the shared memory that each variant
takes, in bytes.
"""

from __future__ import annotations

import json
import sys

import torch
import triton

from demo_voice import snake_kernel
from tests.kernels.vae_variants import vae_variants
from tests.kernels.variant import Variant
from voxcpm_core.checkpoint.releases import release_config
from voxcpm_core.config import ModelConfig
from voxcpm_core.kernels import (
    triton_attention,
    triton_decode_attention,
    triton_dit_tokens,
    triton_fp8,
    triton_gating,
    triton_guidance,
    triton_local_attention,
    triton_lora,
    triton_lora_shrink,
    triton_lora_tiles,
    triton_noise,
    triton_norm,
    triton_products,
    triton_rope,
)
from voxcpm_core.kernels.lora import LoraStack, Selection, torch_lora
from voxcpm_core.kernels.product_configs import ProductConfig, Shape, rule

NUM_PROCESSORS = 128
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def variants(name: str, capability: int, more: bool) -> list[Variant]:
    """One of each kernel with values of that type, as VoxCPM2 has them; `more`: also for other numbers of rows."""
    return [
        *_attention_variants(name), *_local_variants(name), *_decode_variants(name), *_dit_variants(name),
        *_product_variants(name, capability, more), *_fp8_variants(name, capability, more),
        *_lora_variants(name, more), *_other_variants(name),
    ]


def _product_variants(name: str, capability: int, more: bool) -> list[Variant]:
    """As the rule runs the widest products; on Hopper also with dependent launch, and as tables may have them."""
    dtype = DTYPES[name]
    shapes = [
        Shape(op, n, k, str(dtype).removeprefix("torch."))
        for op, n, k in (("norm_linear", 2560, 2048), ("norm_swiglu", 12288, 2048), ("linear_add", 2048, 6144))
    ]
    rows = (1, 22, 64) if more else (22,)
    found = [(shape, rule(shape, num_rows, NUM_PROCESSORS)) for shape in shapes for num_rows in rows]
    if capability >= 90 and name == "bf16":
        found += [(shape, ProductConfig(128, 64, 64, 2, 8, 4, pdl=True)) for shape in (shapes if more else shapes[:1])]
        sizes = (128, 128, 64, 1, 8, 4), (16, 64, 256, 1, 4, 3)
        found += [(shapes[1], ProductConfig(*each, norm_first=True)) for each in sizes]
    return [_product_variant(name, shape, config, capability) for shape, config in found]


def _product_variant(name: str, shape: Shape, config: ProductConfig, capability: int) -> Variant:
    values, knows_fp8 = ("x_ptr", "residual_ptr", "out_ptr"), capability >= 89
    types = {
        **dict.fromkeys(values, f"*{name}"), "weight_ptr": "*u8" if shape.fp8 else f"*{name}",
        "scales_ptr": "*fp32" if shape.fp8 else f"*{name}", "parts_ptr": "*fp32", "counters_ptr": "*i32",
        "num_rows": "i32", "scale": "fp32", "eps": "fp32",
    }
    return Variant(
        triton_products._product, types, triton_products.constants(shape, config, config.norm_way(shape.op), knows_fp8),
        triton_products.options(config),
    )


def _fp8_variants(name: str, capability: int, more: bool) -> list[Variant]:
    """Products of a block with weights in float8, and rows in float8 where the GPU knows it."""
    dtype = str(DTYPES[name]).removeprefix("torch.")
    shapes = [Shape("norm_swiglu", 12288, 2048, dtype, fp8=True)]
    if more:
        shapes += [Shape("norm_linear", 2560, 2048, dtype, fp8=True), Shape("linear_add", 2048, 6144, dtype, fp8=True)]
    rows = (1, 22, 64, 128) if more else (22, 128) if capability >= 90 else (22,)
    variants = [
        _product_variant(name, shape, rule(shape, num_rows, NUM_PROCESSORS), capability)
        for shape in shapes for num_rows in rows
    ]
    if capability >= 89:
        types = {"x_ptr": f"*{name}", "out_ptr": "*u8", "scales_ptr": "*fp32", "k": "i32", "eps": "fp32"}
        for k, norm in ((2048, True), (6144, False)) if more else ((2048, True),):
            variants.append(Variant(triton_fp8._quantise, types, {"NORM": norm, **triton_fp8.constants(k)}))
    return variants


def _attention_variants(name: str) -> list[Variant]:
    values, floats, dtype = f"*{name}", "*fp32", DTYPES[name]
    attention = {
        **dict.fromkeys(("q_ptr", "k_ptr", "v_ptr"), values), "out_ptr": floats, "sums_ptr": floats,
        **dict.fromkeys(("table_ptr", "positions_ptr"), "*i64"), "scale": "fp32",
        **dict.fromkeys(("num_tokens", "table_stride", "kv_stride", "keys_per_split"), "i32"),
    }
    heads = {"KV_HEADS": 2, "GROUP": 8, "GROUP_POW2": 8, "DIM": 128, "PAGE_SIZE": 16}
    heads["BLOCK_KEYS"] = triton_attention.block_keys(dtype)
    return [
        Variant(triton_attention._attend, attention, {**heads, "BLOCK_TOKENS": 2, "SPLITS": 32}),
        Variant(triton_attention._attend, {**attention, "out_ptr": values}, {**heads, "BLOCK_TOKENS": 8, "SPLITS": 1}),
        Variant(
            triton_attention._combine,
            {"parts_ptr": floats, "sums_ptr": floats, "out_ptr": values},
            {"DIM": 128, "SPLITS": 32, "SPLITS_POW2": 32},
        ),
        Variant(
            triton_rope._store,
            {
                **dict.fromkeys(("qkv_ptr", "cos_ptr", "sin_ptr", "q_ptr", "k_ptr", "v_ptr"), values),
                **dict.fromkeys(("table_ptr", "positions_ptr"), "*i64"), "num_tokens": "i32", "table_stride": "i32",
            },
            {"HEADS": 16, "KV_HEADS": 2, "HALF": 64, "PAGE_SIZE": 16, "NUM_ROTATED": 18},
        ),
    ]


def _local_variants(name: str) -> list[Variant]:
    values = f"*{name}"
    types = {
        **dict.fromkeys(("qkv_ptr", "cos_ptr", "sin_ptr", "x_ptr", "out_ptr", "kept_x_ptr"), values),
        **dict.fromkeys(("num_tokens", "first", "num_kept"), "i32"), "scale": "fp32", "eps": "fp32",
    }
    unscaled = {"SCALED": False, "HIDDEN": 1024}
    options = {"num_warps": triton_local_attention.NUM_WARPS}
    return [Variant(triton_local_attention._local, types, constants, options) for constants in (
        {
            **unscaled, "HEADS": 16, "KV_HEADS": 2, "GROUP": 8, "MEMBERS": 4, "HALF": 64, "SIDE": 64, "TOKENS": 16,
            "KEYS": 16, "COPIED": 0, "ROPE": True,
        },
        {
            **unscaled, "HEADS": 16, "KV_HEADS": 2, "GROUP": 8, "MEMBERS": 8, "HALF": 64, "SIDE": 64, "TOKENS": 4,
            "KEYS": 16, "COPIED": 512, "ROPE": True,
        },
        {
            "SCALED": True, "HIDDEN": 1024, "HEADS": 16, "KV_HEADS": 2, "GROUP": 8, "MEMBERS": 8, "HALF": 32,
            "SIDE": 32, "TOKENS": 8, "KEYS": 16, "COPIED": 0, "ROPE": True,
        },
        {  # heads smaller than a matrix product's side, as tiny checkpoints have
            **unscaled, "HEADS": 4, "KV_HEADS": 2, "GROUP": 2, "MEMBERS": 2, "HALF": 8, "SIDE": 16, "TOKENS": 8,
            "KEYS": 16, "COPIED": 0, "ROPE": True,
        },
    )]  # fmt: skip


def _decode_variants(name: str) -> list[Variant]:
    """With the norm before and after the product, of one part and of several that are summed, with and without rope."""
    values = f"*{name}"
    lms = {size: ModelConfig.from_json(release_config(size)).base_lm for size in ("2", "0.5")}
    types = {
        **dict.fromkeys(("qkv_ptr", "x_ptr", "cos_ptr", "sin_ptr", "k_ptr", "v_ptr", "out_ptr"), values),
        **dict.fromkeys(("parts_ptr", "sums_ptr"), "*fp32"), "counters_ptr": "*i32",
        **dict.fromkeys(("table_ptr", "positions_ptr"), "*i64"), "table_stride": "i32", "scale": "fp32", "eps": "fp32",
    }
    return [
        Variant(
            triton_decode_attention._decode, types,
            triton_decode_attention.constants(
                lms[size], DTYPES[name], 16, splits, lms[size].hidden_size * norm_after, rope
            ),
            triton_decode_attention.OPTIONS,
        )
        for size, splits, norm_after, rope in (("2", 1, False, True), ("2", 32, True, False), ("0.5", 32, True, True))
    ]  # fmt: skip


def _lora_variants(name: str, more: bool) -> list[Variant]:
    """Of the adapters of q, k and v and of a gated product; `more`: also of other ranks and for other batches."""
    values = f"*{name}"
    pointers = {"parts_ptr": "*fp32", "slots_ptr": "*i32", "tokens_ptr": "*i32", "eps": "fp32"}
    shrinking = {**pointers, **dict.fromkeys(("x_ptr", "a_ptr"), values)}
    expanding = {**pointers, **dict.fromkeys(("b_ptr", "y_ptr", "out_ptr"), values), "scale": "fp32"}
    found = [Variant(
        triton_lora_tiles._tile,
        {
            "rows_ptr": "*i64", "slots_ptr": "*i32", "tokens_ptr": "*i32",
            **dict.fromkeys(("num_rows", "num_copies", "num_tokens"), "i32"),
        },
        triton_lora_tiles.constants(8, 64),
    )]  # fmt: skip
    sizes = (32, 64, 64), (16, 16, 1), (64, 16, 64), (64, 64, 16)
    for rank, size, num_rows in sizes if more else sizes[:1]:
        merged, ffn = (_lora_stack(DTYPES[name], rank, nums_out) for nums_out in ((2048, 256, 256), (4096, 4096)))
        columns = triton_lora.block_columns(num_rows)
        options = triton_lora.options(merged, size, columns)
        for norm in (True, False):
            found += [
                Variant(
                    triton_lora_shrink._shrink, shrinking, triton_lora_shrink.constants(merged, norm, size),
                    triton_lora_shrink.options(merged, size),
                ),
                Variant(
                    triton_lora._expand, expanding, triton_lora.expand_constants(merged, norm, size, columns), options
                ),
                Variant(
                    triton_lora._expand_gated, expanding, triton_lora.gated_constants(ffn, norm, size, columns),
                    options,
                ),
            ]  # fmt: skip
    return found


def _lora_stack(dtype: torch.dtype, rank: int, nums_out: tuple[int, ...]) -> LoraStack:
    num_a, num_b = len(nums_out) * rank * 2048, sum(nums_out) * rank
    memory = torch.empty(4, num_a + num_b, dtype=dtype, device="meta")
    a, b = memory[:, :num_a].unflatten(-1, (-1, 2048)), memory[:, num_a:].unflatten(-1, (-1, rank))
    return LoraStack(a, b, nums_out, Selection(), torch_lora)


def _dit_variants(name: str) -> list[Variant]:
    """What stands around the DiT's blocks, with tokens of mu and with mu added to the time's."""
    values, found = f"*{name}", []
    names = ("x_ptr", "weight_ptr", "bias_ptr", "mu_ptr", "time_ptr", "cond_ptr", "hidden_ptr", "step_ptr", "out_ptr")
    types = {**dict.fromkeys(names, values), "cfg_ptr": "*fp32", "batch": "i32", "eps": "fp32"}
    for size in ("2", "0.5"):
        config = ModelConfig.from_json(release_config(size))
        hidden, features, patch_size = config.dit.hidden_size, config.feat_dim, config.patch_size
        found += [
            Variant(
                triton_dit_tokens._dit_tokens, types,
                triton_dit_tokens.constants(hidden, features, config.mu_tokens, patch_size),
            ),
            Variant(
                triton_guidance._guided_step, types,
                triton_guidance.constants(hidden, features, patch_size, DTYPES[name]), triton_guidance.OPTIONS,
            ),
        ]  # fmt: skip
    return found


def _other_variants(name: str) -> list[Variant]:
    values, floats = f"*{name}", "*fp32"
    rows = {"x_ptr": values, "weight_ptr": values, "out_ptr": values, "hidden": "i32", "eps": "fp32"}
    gating = {**dict.fromkeys(("gate_up_ptr", "x_ptr", "out_ptr"), values), "ffn": "i32", "eps": "fp32"}
    snake = {"x_ptr": floats, "alpha_ptr": floats, "num_channels": "i32", "num_frames": "i32"}
    snakes = {"EPS": 1e-9, "BLOCK": 1024}
    return [
        *(Variant(triton_norm._norm, rows, {"WEIGHTED": weighted, "WIDTH": 2048}) for weighted in (True, False)),
        *(Variant(
            triton_gating._swiglu, gating,
            {"SCALED": False, "HIDDEN": 1024, "WIDTH": 1024, "BLOCK": triton_gating.block_of(num_rows)},
            {"num_warps": triton_gating.NUM_WARPS},
        ) for num_rows in (1, triton_gating.MANY_ROWS)),
        Variant(
            triton_noise._normal,
            {"seeds_ptr": "*i64", "patches_ptr": "*i64", "out_ptr": floats, "num_elements": "i32"},
            {"UNIT": 1.4629180792671596e-9, "BLOCK": triton_noise.BLOCK},
        ),
        Variant(snake_kernel._forward, {**snake, "out_ptr": floats}, snakes),
        Variant(
            snake_kernel._backward, {**snake, "grad_ptr": floats, "dx_ptr": floats, "dalpha_ptr": floats}, snakes
        ),
    ]


def main(capability: int, more: bool) -> None:
    names = list(DTYPES) if more else ["bf16"]
    found = [(name, variant) for name in names for variant in variants(name, capability, more)]
    found += [("vae", variant) for variant in vae_variants(more)]
    shared_bytes = {
        f"{index} {variant.kernel.__name__} {name}": variant.shared_bytes(capability)
        for index, (name, variant) in enumerate(found)
    }
    print(json.dumps({"triton": triton.__version__, "shared_bytes": shared_bytes}))


if __name__ == "__main__":
    main(int(sys.argv[1]), "--all" in sys.argv)
