"""An instance on an engine without a model that encodes, with its socket."""

from __future__ import annotations

import os
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from tests.serving.fake_engine import FakeEngine
from tests.serving.fake_metrics import FakeMetrics
from tests.serving.fake_triton import FakeBackend, FakeSender
from tests.serving.served import GENEROUS_S, MODEL, speech
from voxcpm_core.config.engine import EngineConfig
from voxcpm_core.config.model import ModelConfig
from voxcpm_core.doors.place import InstancePlace
from voxcpm_core.errors import ErrorCode, RequestError
from voxcpm_core.local.client import connect_instances
from voxcpm_core.local.status import InstanceName
from voxcpm_core.lora.facts import LoraFacts
from voxcpm_core.lora.folder import LoraFolder
from voxcpm_core.serving.instance import Instance
from voxcpm_core.text.tokenizer import TextTokenizer
from voxcpm_core.threads import in_thread
from voxcpm_core.types import FloatArray, PadSide

NAME = InstanceName("voxcpm", "1", "voxcpm_0")


class EncodingEngine(FakeEngine):
    """Its latents tell which samples they stand for, and on which side they were filled up."""

    def encode(self, waveform: FloatArray, pad: PadSide) -> Future[FloatArray]:
        missing = -len(waveform) % self.model.encoder_samples_per_patch
        padded = np.pad(waveform, (missing, 0) if pad == "left" else (0, missing))
        frames = padded.reshape(-1, self.model.vae.hop_length)[:, : self.model.feat_dim]
        future: Future[FloatArray] = Future()
        future.set_result(frames.astype(np.float32))
        return future

    def check_lora(self, path: str) -> Future[LoraFacts]:
        """Any adapter will do."""
        return in_thread(lambda: LoraFacts(*LoraFolder(self.config.lora_root, path).digests(), 4, 8.0, 32), "check")


class Loaded:
    """An instance with a folder of voices, and its socket."""

    def __init__(
        self, tokenizer: TextTokenizer, model: ModelConfig = MODEL, step_s: float = 0.0, name: InstanceName = NAME,
        **settings: Any,
    ) -> None:
        self.engine = EncodingEngine(model, tokenizer, EngineConfig(model="fake", **settings), step_s)
        self.metrics = FakeMetrics()
        self.backend = FakeBackend(self.metrics)
        alone = InstancePlace(name.model, name.version, name.instance, "KIND_CPU 0", index=0, count=1)
        self.instance = Instance(name, alone, self.engine, self.backend)
        self.client = connect_instances(name.model, os.getppid(), GENEROUS_S)[0]

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        return self.client.ask(op, **fields)

    def code_of(self, op: str, **fields: Any) -> ErrorCode:
        with pytest.raises(RequestError) as caught:
            self.ask(op, **fields)
        return caught.value.code

    def say(self, **inputs: np.ndarray) -> FakeSender:
        request = speech(patches=3, seed=np.array([3], np.int64), **inputs)
        self.instance.execute([request])
        assert request.sender.final.wait(GENEROUS_S)
        assert request.sender.violations == []
        return request.sender

    def forget(self) -> None:
        """What the stand-ins remember of requests, which is more than an instance does."""
        self.engine.submitted.clear()
        self.backend.Logger.lines.clear()
        for observed in self.metrics.observed.values():
            observed.clear()

    def close(self) -> None:
        self.client.close()
        self.instance.close()
