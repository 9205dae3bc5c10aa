"""`make-checkpoint` and `convert`: work on checkpoint folders, with the engine's package."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class Size(str, Enum):
    """Sizes of `make-checkpoint`: a few megabytes, or those of a release."""

    TINY = "tiny"
    NOISE = "noise"
    V0_5 = "0.5"
    V1_5 = "1.5"
    V2 = "2"


class Generation(str, Enum):
    """The architectures; a release's size implies its own."""

    V0_5 = "0.5"
    V1_5 = "1.5"
    V2 = "2"


class Dtype(str, Enum):
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


def make_checkpoint(
    out: Annotated[Path, typer.Argument(help="Folder to make.")],
    size: Annotated[Size, typer.Option(help="tiny, noise (small, at real rates), or a full-size release.")] = Size.TINY,
    generation: Annotated[Generation, typer.Option(help="Architecture of a tiny checkpoint.")] = Generation.V2,
    seed: Annotated[int, typer.Option(help="Same seed, same weights.")] = 0,
    dtype: Annotated[Dtype | None, typer.Option(help="Default: the release's own.")] = None,
) -> None:
    """Make a checkpoint with random weights in the released layout, for tests and measurements."""
    from voxcpm_core.checkpoint import random_init
    from voxcpm_core.checkpoint.load import load_config

    if (out / "config.json").exists():
        raise FileExistsError(f"{out} holds a checkpoint already (config.json); name another folder, or remove it")
    chosen = {"dtype": dtype.value} if dtype is not None else {}
    random_init.make_checkpoint(out, size.value, generation=generation.value, seed=seed, **chosen)
    config = load_config(out)
    patch_ms = config.samples_per_patch / config.vae.sample_rate * 1000
    print(f"{out}: random weights, for tests and measurements; not speech. One patch is {patch_ms:g} ms of audio.")


def convert(
    folder: Annotated[Path, typer.Argument(help="Checkpoint folder with .bin or .pth weights.")],
    out: Annotated[Path | None, typer.Option(help="Folder to write; default: beside the old files.")] = None,
) -> None:
    """Convert a checkpoint's weights to safetensors."""
    from voxcpm_core.checkpoint import convert as conversion

    conversion.convert(folder, out)
    print(f"{out or folder}: weights converted to safetensors")
