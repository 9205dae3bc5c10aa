"""Reading the AudioVAE's checkpoint tensors: checked by shape, weight norm folded, float32 on the device."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from voxcpm_core.errors import CheckpointError


class VaeTensors:
    """The tensors of one AudioVAE file, by their names there (without a prefix)."""

    def __init__(self, tensors: Mapping[str, Tensor], device: torch.device | str) -> None:
        self._tensors = tensors
        self.device = torch.device(device)

    def get(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """One tensor on the device; raises CheckpointError naming it when it is missing or misshapen."""
        return self._stored(name, shape).to(self.device)

    def folded(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The effective weight `v * g / |v|` of a weight-normed layer, the norm over all dims but the first."""
        direction = self._stored(f"{name}.weight_v", shape)
        gain = self._stored(f"{name}.weight_g", (shape[0], 1, 1))
        norm = torch.linalg.vector_norm(direction, dim=(1, 2), keepdim=True)
        return (direction * (gain / norm)).to(self.device)

    def _stored(self, name: str, shape: tuple[int, ...]) -> Tensor:
        tensor = self._tensors.get(name)
        if tensor is None:
            raise CheckpointError(f"AudioVAE: tensor {name} is missing")
        if tuple(tensor.shape) != shape:
            raise CheckpointError(f"AudioVAE: tensor {name} has shape {list(tensor.shape)}, expected {list(shape)}")
        return tensor.detach().to(torch.float32)
