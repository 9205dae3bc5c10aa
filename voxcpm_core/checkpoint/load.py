"""Reading the JSON files of a checkpoint folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from voxcpm_core.config import ModelConfig
from voxcpm_core.errors import ConfigError


def load_config(folder: Path) -> ModelConfig:
    """The model of a checkpoint folder; raises ConfigError naming the file or the key."""
    path = folder / "config.json"
    return ModelConfig.from_json(read_json(path, "is this a checkpoint folder?"), str(path))


def read_json(path: Path, hint: str) -> Any:
    """A parsed JSON file; raises ConfigError naming it, with `hint` where it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error}); {hint}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: is not JSON ({error})") from None
