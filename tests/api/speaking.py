"""What the tests say, and how they wait."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import soundfile

from tests.engine.harness import Harness
from tests.noise_voice import NOISE_FOLDER
from voxcpm_core.api import SyncPool
from voxcpm_core.config import EngineConfig
from voxcpm_core.types import FloatArray, SamplingParams, SpeechRequest

SMALL: dict[str, Any] = {"max_num_seqs": 4, "max_model_len": 512}
ENDLESS: dict[str, Any] = {"ignore_stop": True, "length_cap": False}
RATE = 16000  # of the noise voice's encoder
GENEROUS_S = 30.0
CANCEL_LIMIT_S = 5 * 0.2


def say(pool: SyncPool, text: str, **options: Any) -> FloatArray:
    """A whole utterance: [samples]."""
    return np.concatenate(list(pool.generate(text, **options)))


def engine_audio(text: str, lora_root: str = "", **conditions: Any) -> FloatArray:
    """What an engine in this process, driven step by step, gives for the same text: [samples]."""
    harness = Harness(NOISE_FOLDER, EngineConfig(max_running=4, max_model_len=512, lora_root=lora_root))
    params = SamplingParams(seed=7, max_length=5)
    return harness.run(SpeechRequest(text, params=params, **conditions)).audio


def tone(seconds: float) -> FloatArray:
    return (0.3 * np.sin(np.arange(int(seconds * RATE)) * 0.05)).astype(np.float32)


def wav_file(waveform: FloatArray) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, waveform, RATE, format="WAV", subtype="FLOAT")
    return file.getvalue()


def is_idle(pool: Any) -> bool:
    return all((s.running, s.waiting, s.pages_used) == (0, 0, 0) for s in pool.stats())


def wait_until(condition: Callable[[], bool], timeout_s: float = GENEROUS_S) -> None:
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s, "it did not come true in time"
        time.sleep(0.01)


def assert_same(left: FloatArray, right: FloatArray) -> None:
    """As near as batches of different sizes are."""
    assert left.shape == right.shape
    assert np.abs(left - right).max() < 1e-5
