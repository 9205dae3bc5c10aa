"""Typed configuration: what a checkpoint is (`ModelConfig`) and how it is served (`EngineConfig`)."""

from voxcpm_core.config.engine import EngineConfig
from voxcpm_core.config.model import ModelConfig, RopeConfig, TransformerConfig
from voxcpm_core.config.vae import VaeConfig

__all__ = ["EngineConfig", "ModelConfig", "RopeConfig", "TransformerConfig", "VaeConfig"]
