"""Settings of `voxcpm_control`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from voxcpm_core.config.settings import given_settings


@dataclass(frozen=True)
class ControlConfig:
    """Each is also `VOXCPM_<NAME>` in the environment, which wins."""

    admin_token: str = field(default="", repr=False)  # what changing operations must bring; "": they are refused
    open_cancel: bool = True  # 0: `cancel` needs the token, too

    @classmethod
    def from_settings(cls, parameters: Mapping[str, str], environ: Mapping[str, str]) -> ControlConfig:
        """Raises ConfigError for an unknown parameter and a bad value."""
        return cls(**given_settings(cls, parameters, environ))
