"""The decoder in Triton kernels against the one in torch, interpreted on a machine without a GPU: tiny sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.oracle.vae import official_vae, randomize
from tests.vae.architectures import SMALL
from voxcpm_core.kernels.kernel_set import TORCH_KERNELS, triton_kernels
from voxcpm_core.vae import VaeDecoder

triton_decoder = pytest.importorskip(
    "voxcpm_core.vae.triton_decoder", reason="Triton has no build for this machine"
)

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


# Of each generation, with fewer frames than elsewhere: an interpreted program takes a tenth of a second.
ARCHITECTURES = {
    "0.5": replace(SMALL["v1"], decoder_rates=(2, 2)),
    "1.5": replace(SMALL["v1_odd_rates"], decoder_rates=(3,)),
    "2": replace(SMALL["v2"], decoder_rates=(3, 2)),
    "dense": SMALL["v1_dense"],
}


def reference(name: str, device: torch.device | str = "cpu") -> VaeDecoder:
    """On the CPU by default: cuDNN may round to TF32."""
    config = ARCHITECTURES[name]
    return VaeDecoder.from_tensors(config, randomize(official_vae(config), seed=1), device)


def in_triton(name: str, fused_channels: int = triton_decoder.FUSED_CHANNELS) -> Any:
    return triton_decoder.TritonVaeDecoder(reference(name, DEVICE), fused_channels)


def decode_slots(decoder: Any, latents: Tensor, states: Tensor, slots: Sequence[int]) -> Tensor:
    return decoder.decode_slots(latents.to(DEVICE), states, torch.tensor(slots, device=DEVICE)).cpu()


def random_latents(batch: int, frames: int) -> Tensor:
    return torch.randn(batch, 8, frames, generator=torch.Generator().manual_seed(3))


def assert_same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("name", "sizes"), [("1.5", (3,)), ("2", (2, 1))])
def test_chunks_equal_the_whole_in_torch(name, sizes):
    decoder = in_triton(name)
    latents, states = random_latents(1, sum(sizes)), decoder.new_state(2)
    other = states[0].normal_().clone()
    chunks = [decode_slots(decoder, chunk, states, [1]) for chunk in latents.split(sizes, dim=-1)]
    assert_same(torch.cat(chunks, dim=-1), reference(name).decode_offline(latents))
    assert torch.equal(states[0], other)


def test_slots_out_of_order_and_one_that_pads():
    # As the released sizes have them: a level of many channels first, then one whose units are fused.
    decoder = in_triton("0.5", fused_channels=8)
    latents, states = random_latents(3, 2), decoder.new_state(4)
    first = decode_slots(decoder, latents[..., :1], states, [2, 3, 3])
    assert not states[:2].any()
    joined = torch.stack((latents[1, :, :1], latents[0, :, 1:]))
    second = decode_slots(decoder, joined, states, [0, 2])
    whole = reference("0.5").decode_offline(latents)
    assert_same(torch.cat((first[0], second[1])), whole[0])
    assert_same(second[0], whole[1, : second.shape[1]])


def test_the_kernels_of_a_device_bring_their_decoder():
    expected, dense = reference("2"), reference("dense")
    assert TORCH_KERNELS.vae_decoder(expected) is expected
    kernels = triton_kernels(torch.device("cpu"))
    found = kernels.vae_decoder(expected)
    assert isinstance(found, triton_decoder.TritonVaeDecoder)
    assert found.state_size == expected.state_size
    assert kernels.vae_decoder(dense) is dense
    with pytest.raises(ValueError, match="depthwise"):
        triton_decoder.TritonVaeDecoder(dense)
