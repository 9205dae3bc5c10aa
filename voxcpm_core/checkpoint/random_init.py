"""Checkpoints with random weights in the released layout: tiny ones for tests, full-size ones for benchmarks."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import torch

from voxcpm_core.checkpoint.releases import RELEASES, Json, release_config
from voxcpm_core.checkpoint.shapes import VAE_BOUNDARIES, Shape, main_shapes, vae_shapes
from voxcpm_core.checkpoint.tiny import noise_config, tiny_config
from voxcpm_core.checkpoint.tiny_tokenizer import write_tokenizer
from voxcpm_core.checkpoint.write import atomic_path, write_safetensors
from voxcpm_core.config import ModelConfig
from voxcpm_core.dtypes import TORCH_DTYPES
from voxcpm_core.errors import ConfigError, shown

SIZES = ("tiny", "noise", *RELEASES)
DEFAULT_STOP_BIAS = 0.2  # streams end early, late and never; at 2.5 they never end by themselves
NOISE_STOP_BIAS = 0.9  # a sentence usually takes 5 to 60 patches
NOISE_OUTPUT_GAIN = 0.1  # of the VAE's last convolution: keeps the noise of random weights at a moderate level
_STOP_OFFSET = 8.0  # pre-activation of the stop head's constant channel; silu(8) is 8 within 0.003


def make_checkpoint(
    out: Path,
    size: str,
    generation: str = "2",
    seed: int = 0,
    dtype: str | None = None,
    stop_bias: float | None = None,
    device: str = "cpu",
) -> None:
    """Write a checkpoint folder with random weights.

    `size` is "tiny" (then of `generation` "0.5", "1.5" or "2"), "noise", or a release: "0.5", "1.5", "2".
    `dtype` is that of the main weights (None: float32 for tiny, else bfloat16). `stop_bias` is the mean lead of
    "go on" over "stop" in the stop logits (None: a value with which lengths vary). `device` draws the values: other
    ones on a GPU, but a full-size model in seconds. Raises ConfigError for an unknown size, generation or dtype.
    """
    if stop_bias is None:
        stop_bias = NOISE_STOP_BIAS if size == "noise" else DEFAULT_STOP_BIAS
    values, generation = _config(size, generation, dtype)
    config = ModelConfig.from_json(values)
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    write_tokenizer(out, config.vocab_size)
    generator = torch.Generator(device).manual_seed(seed)
    main = _main_tensors(config, stop_bias, generator)
    if generation == "0.5":
        _save_pickle(out / "pytorch_model.bin", dict(main))
    else:
        shapes = main_shapes(config)
        write_safetensors(out / "model.safetensors", shapes, dict.fromkeys(shapes, TORCH_DTYPES[config.dtype]), main)
    output_gain = NOISE_OUTPUT_GAIN if size == "noise" else 1.0
    _save_pickle(out / "audiovae.pth", random_vae_tensors(config, output_gain, generator))


def _config(size: str, generation: str, dtype: str | None) -> tuple[Json, str]:
    for name, value, allowed in (("size", size, SIZES), ("generation", generation, RELEASES)):
        if value not in allowed:
            raise ConfigError(f"{name}: expected one of {', '.join(allowed)}, got {shown(value)}")
    if size == "tiny":
        return tiny_config(generation, dtype or "float32"), generation
    values = noise_config() if size == "noise" else release_config(size)
    return values | {"dtype": dtype or "bfloat16"}, "2" if size == "noise" else size


def _save_pickle(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    with atomic_path(path) as partial:
        torch.save({"state_dict": tensors}, partial)


def _main_tensors(
    config: ModelConfig, stop_bias: float, generator: torch.Generator
) -> Iterator[tuple[str, torch.Tensor]]:
    for name, shape in main_shapes(config).items():
        tensor = _draw_main(name, shape, generator)
        # The stop head has no bias. A channel of stop_proj that ignores its input stands in for one.
        if name == "stop_proj.weight":
            tensor[0] = 0.0
        elif name == "stop_proj.bias":
            tensor[0] = _STOP_OFFSET
        elif name == "stop_head.weight":
            tensor[0, 0], tensor[1, 0] = stop_bias / _STOP_OFFSET, 0.0
        yield name, tensor.to(TORCH_DTYPES[config.dtype]).cpu()


def _draw_main(name: str, shape: Shape, generator: torch.Generator) -> torch.Tensor:
    normal = torch.randn(shape, generator=generator, device=generator.device)
    if name.endswith("norm.weight"):
        return 1.0 + 0.1 * normal
    if name.endswith(".bias"):
        return 0.05 * normal
    if name.endswith(("embed_tokens.weight", "special_token")):
        return normal
    return normal / math.sqrt(shape[-1])


def random_vae_tensors(
    config: ModelConfig, output_gain: float, generator: torch.Generator
) -> dict[str, torch.Tensor]:
    """The content of an AudioVAE file; `output_gain` is that of the last convolution, about 1 gives full level."""
    tensors = {name: _draw_vae(name, shape, generator).cpu() for name, shape in vae_shapes(config.vae).items()}
    if config.vae.sample_rate_boundaries:
        tensors[VAE_BOUNDARIES] = torch.tensor(config.vae.sample_rate_boundaries, dtype=torch.int32)
    last_gain = next(name for name in reversed(tensors) if name.startswith("decoder.") and name.endswith("weight_g"))
    tensors[last_gain] = tensors[last_gain] * output_gain
    return tensors


def _draw_vae(name: str, shape: Shape, generator: torch.Generator) -> torch.Tensor:
    if name.endswith("weight_g"):
        return 0.6 + 0.3 * torch.rand(shape, generator=generator, device=generator.device)
    if name.endswith("alpha"):
        return 0.5 + torch.rand(shape, generator=generator, device=generator.device)
    normal = torch.randn(shape, generator=generator, device=generator.device)
    if name.endswith("scale_embed.weight"):
        return 1.0 + 0.1 * normal
    if name.endswith("bias_embed.weight"):
        return 0.1 * normal
    return 0.02 * normal if name.endswith(".bias") else normal
