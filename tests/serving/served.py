"""An adapter on an engine without a model, and requests to it."""

from __future__ import annotations

import io

import numpy as np
import soundfile

from tests.serving.fake_engine import FakeEngine
from tests.serving.fake_triton import FakeBackend, FakeRequest, FakeSender, text
from voxcpm_core.checkpoint.tiny import tiny_config
from voxcpm_core.config.engine import EngineConfig
from voxcpm_core.config.model import ModelConfig
from voxcpm_core.serving.adapter import Adapter
from voxcpm_core.text.tokenizer import TextTokenizer

GENEROUS_S = 5.0
MODEL = ModelConfig.from_json(tiny_config("2"))


class Served:
    def __init__(self, tokenizer: TextTokenizer, step_s: float, settings: dict[str, int | str]) -> None:
        self.backend = FakeBackend()
        self.engine = FakeEngine(MODEL, tokenizer, EngineConfig(model="fake", **settings), step_s)
        self.adapter = Adapter(self.engine, self.backend)

    def run(self, *requests: FakeRequest, within_s: float = GENEROUS_S) -> FakeSender:
        """Execute and wait for every FINAL; returns the first request's sender."""
        self.adapter.execute(requests)
        for request in requests:
            assert request.sender.final.wait(within_s)
            assert request.sender.num_finals == 1
            assert request.sender.violations == []
        return requests[0].sender


def speech(request_id: str = "r1", patches: int = 9, **inputs: np.ndarray) -> FakeRequest:
    given = {"target_text": text("hello there"), "max_length": np.array([patches], np.int32), **inputs}
    return FakeRequest(given, id=request_id)


def wav_bytes(num_samples: int = 4000) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, np.linspace(-0.5, 0.5, num_samples), MODEL.vae.encoder_sample_rate, format="WAV")
    return buffer.getvalue()
