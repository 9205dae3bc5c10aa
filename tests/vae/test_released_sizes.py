"""The released architectures, built without memory from the official modules' own shapes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.oracle.vae import official_vae
from tests.vae.architectures import RELEASED
from voxcpm_core.vae import VaeDecoder, VaeEncoder

PATCH_FRAMES = {"0.5": 2, "1.5": 4, "2": 4}
SAMPLES_PER_PATCH = {"0.5": 1280, "1.5": 7056, "2": 7680}
STATE_MEGABYTES = {"0.5": 0.46, "1.5": 0.64, "2": 0.65}


@pytest.fixture(scope="module", params=RELEASED)
def generation(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def tensors(generation: str) -> dict[str, Tensor]:
    return dict(official_vae(RELEASED[generation], "meta").state_dict())


@pytest.fixture(scope="module")
def decoder(generation: str, tensors: dict[str, Tensor]) -> VaeDecoder:
    return VaeDecoder.from_tensors(RELEASED[generation], tensors, "meta")


def test_decoder_of_a_release(generation: str, decoder: VaeDecoder) -> None:
    state = decoder.new_state(2)
    audio = decoder.decode(torch.empty(2, 64, PATCH_FRAMES[generation], device="meta"), state)
    assert audio.shape == (2, SAMPLES_PER_PATCH[generation])
    assert state.shape == (2, decoder.state_size)
    assert decoder.state_size * 4 / 1e6 == pytest.approx(STATE_MEGABYTES[generation], abs=0.005)


def test_state_slices_tile_the_row(generation: str, decoder: VaeDecoder) -> None:
    end = 0
    for part in decoder.layout.slices:
        assert part.offset == end
        end += part.size
    assert end == decoder.state_size
    names = {part.name for part in decoder.layout.slices}
    assert len(names) == 2 + 4 * len(RELEASED[generation].decoder_rates)


def test_encoder_of_a_release(generation: str, tensors: dict[str, Tensor]) -> None:
    config = RELEASED[generation]
    encoder = VaeEncoder.from_tensors(config, tensors, "meta")
    one_second = torch.empty(1, config.encoder_sample_rate, device="meta")
    assert encoder.encode(one_second).shape == (1, 64, 25)
