"""The AudioVAE's kernels as VoxCPM2 needs them; their types do not depend on the model's."""

from __future__ import annotations

from tests.kernels.variant import Variant
from voxcpm_core.kernels import triton_vae_conv, triton_vae_product, triton_vae_unit

STATE = {
    **dict.fromkeys(("past_ptr", "states_ptr"), "*fp32"), "slots_ptr": "*i64",
    **dict.fromkeys(("state_size", "state_offset"), "i32"),
}  # fmt: skip
COUNTS = ("num_rows", "num_frames", "dilation")  # need not be multiples of anything


def vae_variants(every: bool) -> list[Variant]:
    """One or two of each kernel, or `every` one that a patch of any batch takes."""
    tiles = triton_vae_product.TILES if every else triton_vae_product.TILES[:2]
    widths = (32, 64, 128) if every else (64,)
    found = [_depthwise(), _last(), _exchange(), _of_samples()]
    for tile in tiles:
        found += [_product(tile, border=0, residual=True, out_halves=False)]
        if every:
            found += [_product(tile, border=1, residual=False, out_halves=False)]
            found += [_product(tile, border=0, residual=residual, out_halves=True) for residual in (True, False)]
    for width in widths:
        found += [_unit(width, batch=64, out_halves=False)]
        if every:
            found += [_unit(width, batch=64, out_halves=True), _unit(width, batch=1, out_halves=True)]
    return found


def _variant(kernel, types, constants, **options) -> Variant:
    multiples = tuple(name for name in types if name not in COUNTS)
    return Variant(kernel, types, constants, options, multiples)


def _depthwise() -> Variant:
    types = {
        **STATE, **dict.fromkeys(("x_ptr", "params_ptr"), "*fp32"), "out_ptr": "*fp16",
        **dict.fromkeys(("num_frames", "num_channels", "dilation", "half_stride"), "i32"),
    }  # fmt: skip
    constants = {
        "KEPT": triton_vae_conv.KEPT_FRAMES, "BLOCK_T": triton_vae_conv.BLOCK_FRAMES,
        "BLOCK_C": triton_vae_conv.BLOCK_CHANNELS,
    }  # fmt: skip
    return _variant(triton_vae_conv._depthwise, types, constants)


def _last() -> Variant:
    types = {
        **STATE, **dict.fromkeys(("x_ptr", "weights_ptr", "bias_ptr", "audio_ptr"), "*fp32"),
        **dict.fromkeys(("num_frames", "num_channels"), "i32"),
    }  # fmt: skip
    block_t = triton_vae_conv.LAST_BLOCK // 32
    return _variant(triton_vae_conv._last, types, {"KEPT": 8, "BLOCK_T": block_t, "BLOCK_C": 32})


def _exchange() -> Variant:
    types = {**STATE, "rows_ptr": "*fp16", **dict.fromkeys(("num_frames", "num_channels", "half_stride"), "i32")}
    return _variant(triton_vae_product._exchange, types, {"BLOCK": triton_vae_product.BORDER_BLOCK})


def _product(tile: triton_vae_product.Tile, border: int, residual: bool, out_halves: bool) -> Variant:
    out = "*fp16" if out_halves else "*fp32"
    types = {
        **dict.fromkeys(("rows_ptr", "weight_ptr"), "*fp16"), "params_ptr": "*fp32",
        **dict.fromkeys(("residual_ptr", "sum_ptr", "out_ptr"), out),
        **dict.fromkeys(
            ("num_rows", "num_frames", "num_columns", "depth", "row_stride", "half_stride", "out_half_stride"), "i32"
        ),
    }  # fmt: skip
    if residual:
        types["residual_ptr"] = "*fp32"
    constants = {
        "BORDER": border, "RESIDUAL": residual, "OUT_HALVES": out_halves,
        "BLOCK_M": tile.rows, "BLOCK_N": tile.columns, "BLOCK_K": tile.depth,
    }  # fmt: skip
    return _variant(
        triton_vae_product._product, types, constants, num_warps=tile.num_warps, num_stages=tile.num_stages
    )


def _of_samples() -> Variant:
    """The encoder's first product: each row begins one sample behind the one before."""
    product = _product(triton_vae_product.TILES[0], border=1, residual=False, out_halves=False)
    types = {name: kind for name, kind in product.types.items() if name != "row_stride"}
    multiples = tuple(name for name in product.multiples if name not in ("row_stride", "depth"))
    return product._replace(types=types, constants={**product.constants, "row_stride": 1}, multiples=multiples)


def _unit(width: int, batch: int, out_halves: bool) -> Variant:
    out = "*fp16" if out_halves else "*fp32"
    types = {
        **STATE, **dict.fromkeys(("x_ptr", "conv_ptr", "params_ptr", "residual_ptr"), "*fp32"), "weight_ptr": "*fp16",
        **dict.fromkeys(("sum_ptr", "out_ptr"), out),
        **dict.fromkeys(("num_frames", "dilation", "out_half_stride"), "i32"),
    }  # fmt: skip
    blocks = triton_vae_unit.blocks_of(batch, 960, width)
    constants = {
        "num_channels": width, "OUT_HALVES": out_halves, "KEPT": triton_vae_conv.KEPT_FRAMES,
        "BLOCK_M": blocks.frames, "BLOCK_N": blocks.columns, "BLOCK_K": blocks.depth,
    }  # fmt: skip
    return _variant(triton_vae_unit._unit, types, constants, **blocks.options)
