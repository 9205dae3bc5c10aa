from __future__ import annotations

from typing import Any

import pytest

from tests.oracle.fixtures import official_models, tiny_checkpoints
from tests.oracle.vae import official_vae, randomize
from tests.vae.architectures import SMALL
from voxcpm_core.vae import VaeDecoder, VaeEncoder

__all__ = ["decoder", "encoder", "oracle", "official_models", "tiny_checkpoints"]


@pytest.fixture(scope="session", params=SMALL)
def architecture(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def oracle(architecture: str) -> Any:
    """The official module of an architecture, with random weights."""
    vae = official_vae(SMALL[architecture])
    randomize(vae, seed=1)
    return vae


@pytest.fixture(scope="session")
def decoder(architecture: str, oracle: Any) -> VaeDecoder:
    return VaeDecoder.from_tensors(SMALL[architecture], oracle.state_dict())


@pytest.fixture(scope="session")
def encoder(architecture: str, oracle: Any) -> VaeEncoder:
    return VaeEncoder.from_tensors(SMALL[architecture], oracle.state_dict())
