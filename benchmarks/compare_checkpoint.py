"""A checkpoint of random weights that this engine and its peer both load, and on which speech never ends by itself."""

from __future__ import annotations

from pathlib import Path

from voxcpm_core.checkpoint.convert import convert
from voxcpm_core.checkpoint.random_init import make_checkpoint

_NEVER_STOPS = 100.0  # lead of "go on" over what the other channels of the stop head add, which is about 1


def ensure_checkpoint(folder: Path, size: str, generation: str = "2") -> Path:
    """The checkpoint in `folder`, made there unless it is there already; the arguments are those of make_checkpoint."""
    if (folder / "config.json").exists():
        return folder
    make_checkpoint(folder, size, generation=generation, stop_bias=_NEVER_STOPS)
    if not (folder / "model.safetensors").exists():  # the release has a pickle, which the peer does not read
        convert(folder)
        # It would take these for weights of the model: it reads every file of this kind. The VAE's pickle stays.
        (folder / "audiovae.safetensors").unlink()
        (folder / "pytorch_model.bin").unlink()
    return folder
