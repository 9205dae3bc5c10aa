"""Tiny checkpoints, and the official models of them."""

from tests.oracle.fixtures import official_models, tiny_checkpoints

__all__ = ["official_models", "tiny_checkpoints"]
