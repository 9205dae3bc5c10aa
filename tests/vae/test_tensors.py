"""Reading tensors: weight norm is folded, what does not fit is named."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.oracle.vae import official_vae, randomize
from tests.vae.architectures import V2
from voxcpm_core.errors import CheckpointError
from voxcpm_core.vae import VaeDecoder, VaeEncoder
from voxcpm_core.vae.tensors import VaeTensors


@pytest.mark.parametrize("layer", [nn.Conv1d(6, 4, 5), nn.ConvTranspose1d(6, 4, 5)], ids=["conv", "transposed"])
def test_folded_weight_is_that_of_the_normed_layer(layer: nn.Module) -> None:
    normed = nn.utils.parametrizations.weight_norm(layer, dim=0)
    gain, direction = normed.parametrizations.weight.original0, normed.parametrizations.weight.original1
    with torch.no_grad():
        gain.mul_(1.7)
    tensors = VaeTensors({"x.weight_g": gain, "x.weight_v": direction}, "cpu")
    folded = tensors.folded("x", tuple(direction.shape))
    assert not folded.requires_grad
    torch.testing.assert_close(folded, normed.weight.detach(), atol=1e-6, rtol=0)


def test_tensors_of_lower_precision_are_widened() -> None:
    assert VaeTensors({"a": torch.ones(2, dtype=torch.bfloat16)}, "cpu").get("a", (2,)).dtype == torch.float32


@pytest.mark.parametrize(
    ("part", "name"),
    [
        (VaeDecoder, "decoder.model.3.block.3.block.1.weight_g"),
        (VaeDecoder, "decoder.sr_cond_model.2.bias_embed.weight"),
        (VaeEncoder, "encoder.fc_mu.bias"),
    ],
)
def test_missing_and_misshapen_tensors_are_named(part: type[VaeDecoder | VaeEncoder], name: str) -> None:
    tensors = dict(randomize(official_vae(V2), seed=1))
    misshapen = {**tensors, name: torch.zeros(3, 5)}
    with pytest.raises(CheckpointError, match=rf"{name} has shape \[3, 5\], expected \["):
        part.from_tensors(V2, misshapen)
    del tensors[name]
    with pytest.raises(CheckpointError, match=f"{name} is missing"):
        part.from_tensors(V2, tensors)
