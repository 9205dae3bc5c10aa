"""Reading a checkpoint's config.json."""

from __future__ import annotations

import json
from pathlib import Path

from voxcpm_core.config import ModelConfig
from voxcpm_core.errors import ConfigError


def load_config(folder: Path) -> ModelConfig:
    """The model of a checkpoint folder; raises ConfigError naming the file or the key."""
    path = folder / "config.json"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error}); is this a checkpoint folder?") from None
    except ValueError as error:
        raise ConfigError(f"{path}: is not JSON ({error})") from None
    return ModelConfig.from_json(values, str(path))
