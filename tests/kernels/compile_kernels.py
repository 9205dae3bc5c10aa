"""Compile every Triton kernel for a compute capability; no GPU is needed.

Run: python -m tests.kernels.compile_kernels 90 [--all]. Prints a JSON object of the shared memory that each variant
takes, in bytes.
"""

from __future__ import annotations

import json
import sys
from typing import Any, NamedTuple

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from demo_voice import snake_kernel
from voxcpm_core.kernels import (
    triton_attention,
    triton_guidance,
    triton_layer_ops,
    triton_local_attention,
    triton_noise,
    triton_rope,
)

WARP_SIZE = 32
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


class Variant(NamedTuple):
    """A kernel, the types of its arguments, and the values of those that are constants."""

    kernel: Any
    types: dict[str, str]
    constants: dict[str, Any]

    def shared_bytes(self, capability: int) -> int:
        signature = {name: self.types.get(name, "constexpr") for name in self.kernel.arg_names}
        source = ASTSource(self.kernel, signature, self.constants)
        return triton.compile(source, target=GPUTarget("cuda", capability, WARP_SIZE)).metadata.shared


def variants(name: str) -> list[Variant]:
    """One of each kernel with values of that type, as VoxCPM2 has them."""
    return [*_attention_variants(name), *_other_variants(name)]


def _attention_variants(name: str) -> list[Variant]:
    values, floats, dtype = f"*{name}", "*fp32", DTYPES[name]
    attention = {
        **dict.fromkeys(("q_ptr", "k_ptr", "v_ptr"), values), "out_ptr": floats, "sums_ptr": floats,
        **dict.fromkeys(("table_ptr", "positions_ptr"), "*i64"), "scale": "fp32",
        **dict.fromkeys(("num_tokens", "table_stride", "kv_stride", "keys_per_split"), "i32"),
    }
    heads = {"KV_HEADS": 2, "GROUP": 8, "GROUP_POW2": 8, "DIM": 128, "PAGE_SIZE": 16}
    heads["BLOCK_KEYS"] = triton_attention.block_keys(dtype)
    turned = dict.fromkeys(("qkv_ptr", "cos_ptr", "sin_ptr"), values)
    return [
        Variant(triton_attention._attend, attention, {**heads, "BLOCK_TOKENS": 2, "SPLITS": 32}),
        Variant(triton_attention._attend, {**attention, "out_ptr": values}, {**heads, "BLOCK_TOKENS": 8, "SPLITS": 1}),
        Variant(
            triton_attention._combine,
            {"parts_ptr": floats, "sums_ptr": floats, "out_ptr": values},
            {"DIM": 128, "SPLITS": 32, "SPLITS_POW2": 32},
        ),
        Variant(
            triton_local_attention._local,
            {**turned, "out_ptr": values, "num_tokens": "i32", "scale": "fp32"},
            {
                "HEADS": 16, "KV_HEADS": 2, "GROUP": 8, "GROUP_POW2": 8, "HALF": 64, "TOKENS": 16, "KEYS": 16,
                "ROPE": True,
            },
        ),
        Variant(
            triton_rope._store,
            {
                **turned, **dict.fromkeys(("q_ptr", "k_ptr", "v_ptr"), values),
                **dict.fromkeys(("table_ptr", "positions_ptr"), "*i64"), "num_tokens": "i32", "table_stride": "i32",
            },
            {"HEADS": 16, "KV_HEADS": 2, "HALF": 64, "PAGE_SIZE": 16, "NUM_ROTATED": 18},
        ),
    ]


def _other_variants(name: str) -> list[Variant]:
    values, floats, ops = f"*{name}", "*fp32", triton_layer_ops
    rows = {"x_ptr": values, "weight_ptr": values, "out_ptr": values, "hidden": "i32", "eps": "fp32"}
    snake = {"x_ptr": floats, "alpha_ptr": floats, "num_channels": "i32", "num_frames": "i32"}
    snakes = {"EPS": 1e-9, "BLOCK": 1024}
    return [
        Variant(ops._norm, rows, {"WIDTH": 2048}),
        Variant(
            ops._add_norm,
            {**rows, "branch_ptr": values, "sum_ptr": values, "scale": "fp32"},
            {"SCALED": True, "WIDTH": 2048},
        ),
        Variant(ops._swiglu, {"gate_up_ptr": values, "out_ptr": values, "ffn": "i32"}, {"BLOCK": ops.BLOCK}),
        Variant(
            triton_guidance._guided_step,
            {
                **dict.fromkeys(("x_ptr", "velocity_ptr", "step_ptr", "out_ptr"), values), "cfg_ptr": floats,
                "batch": "i32", "size": "i32",
            },
            {"WIDTH": 256},
        ),
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


def main(capability: int, names: list[str]) -> None:
    found = {}
    for name in names:
        for index, variant in enumerate(variants(name)):
            found[f"{index} {variant.kernel.__name__} {name}"] = variant.shared_bytes(capability)
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), list(DTYPES) if "--all" in sys.argv else ["bf16"])
