"""The same checkpoint, text and seed through Triton and through a pool."""

import numpy as np
import pytest

from tests.api.speaking import assert_same, say
from voxcpm_client import synthesize


@pytest.mark.server
def test_chunks_are_those_of_the_triton_model(triton_server, pool):
    speech = synthesize("Hello world", url=triton_server.grpc_url, format="pcm_f32le", seed=7, max_length=5)
    assert speech.sample_rate == pool.get_model_info()["sample_rate"]
    served = np.frombuffer(speech.audio, np.float32)
    assert_same(served, say(pool, "Hello world", seed=7, max_generate_length=5))
