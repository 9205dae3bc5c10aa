"""What of a checkpoint is needed to validate requests: its folder, its configuration and its tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from voxcpm_core.checkpoint.load import load_config
from voxcpm_core.checkpoint.locate import locate
from voxcpm_core.config import ModelConfig
from voxcpm_core.errors import CheckpointError
from voxcpm_core.text.tokenizer import TextTokenizer


@dataclass(frozen=True)
class OpenedCheckpoint:
    """A checkpoint without its weights."""

    folder: Path
    model: ModelConfig
    tokenizer: TextTokenizer


def open_checkpoint(model: str) -> OpenedCheckpoint:
    """Find a checkpoint folder, or a hub id's snapshot, and read its small files.

    Raises ConfigError or CheckpointError naming what is to blame.
    """
    folder = locate(model)
    config = load_config(folder)
    tokenizer = TextTokenizer.from_folder(folder)
    if tokenizer.vocab_size > config.vocab_size:
        raise CheckpointError(
            f"{folder / 'tokenizer.json'}: has ids up to {tokenizer.vocab_size - 1}, "
            f"but lm_config.vocab_size is {config.vocab_size}"
        )
    return OpenedCheckpoint(folder, config, tokenizer)
