"""The dtypes that a model can run in, by the names that config.json and the settings use."""

from __future__ import annotations

import torch

TORCH_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
