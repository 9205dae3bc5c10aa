"""Small steps run on one thread; what they make does not depend on it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.engine.harness import Harness
from voxcpm_core.checkpoint.locate import DEMO_FOLDER
from voxcpm_core.config import EngineConfig
from voxcpm_core.runner.threads import MIN_SHARED_VALUES, threads_for
from voxcpm_core.types import SamplingParams, SpeechRequest

CPU = torch.device("cpu")


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("num_values", "device", "expected"),
    [(MIN_SHARED_VALUES - 1, CPU, 1), (MIN_SHARED_VALUES, CPU, 2), (1, torch.device("cuda"), 2)],
)
def test_one_thread_for_few_values_of_a_cpu(two_threads, num_values, device, expected):
    with threads_for(num_values, device):
        assert torch.get_num_threads() == expected
    assert torch.get_num_threads() == 2


def test_threads_come_back_after_an_error(two_threads):
    with pytest.raises(ValueError, match="of the step"), threads_for(1, CPU):
        raise ValueError("of the step")
    assert torch.get_num_threads() == 2


def test_one_stream_on_one_thread_is_the_stream_of_a_crowd_on_two(two_threads):
    harness = Harness(DEMO_FOLDER, EngineConfig(max_running=8, kv_cache_mib=64, max_model_len=128))
    request = SpeechRequest(target_text="Hello.", params=SamplingParams(seed=1, max_length=4, ignore_stop=True))
    alone = harness.run(request)
    crowd = [harness.add(request) for _ in range(5)]
    harness.drain()
    for stream in crowd:
        assert np.array_equal(stream.latents, alone.latents)
        np.testing.assert_allclose(stream.audio, alone.audio, atol=1e-6)  # the VAE rounds by its batch
