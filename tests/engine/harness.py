"""Drives an EngineCore step by step and gathers what every stream got."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from voxcpm_core.checkpoint.load import load_config
from voxcpm_core.config import EngineConfig, ModelConfig
from voxcpm_core.engine.build import build_core
from voxcpm_core.engine.core import EngineCore
from voxcpm_core.fanout import Fanout
from voxcpm_core.prepare import prepare
from voxcpm_core.runner.noise import NoiseSource
from voxcpm_core.text.tokenizer import TextTokenizer
from voxcpm_core.types import (
    Admitted,
    EngineRequest,
    Failed,
    FinishReason,
    FloatArray,
    PadSide,
    Patch,
    SpeechRequest,
    StreamEvent,
)

CPU = torch.device("cpu")
SMALL = EngineConfig(max_running=16, max_model_len=256, kv_cache_mib=8)


class Tape:
    """A noise source that replays recorded draws, keyed like the serving one by (seed, patch)."""

    def __init__(self) -> None:
        self.draws: dict[int, Tensor] = {}  # seed -> [n, P, C]

    def __call__(self, seeds: Tensor, patch_indices: Tensor, patch_size: int, feat_dim: int) -> Tensor:
        return torch.stack([self.draws[int(s)][int(i)] for s, i in zip(seeds, patch_indices, strict=True)])


@dataclass
class Received:
    """The events of one stream."""

    events: list[StreamEvent] = field(default_factory=list)

    def __call__(self, event: StreamEvent) -> None:
        assert not self.ended, "an event after the terminal one"
        self.events.append(event)

    @property
    def patches(self) -> list[Patch]:
        return [event for event in self.events if isinstance(event, Patch)]

    @property
    def ended(self) -> bool:
        last = self.events[-1] if self.events else None
        return isinstance(last, Failed) or (isinstance(last, Patch) and last.finish_reason is not None)

    @property
    def error_code(self) -> str | None:
        last = self.events[-1]
        return last.error.code.value if isinstance(last, Failed) else None

    @property
    def finish_reason(self) -> FinishReason | None:
        return self.patches[-1].finish_reason

    @property
    def latents(self) -> FloatArray:
        return np.stack([patch.latents for patch in self.patches])  # [n, P, C]

    @property
    def audio(self) -> FloatArray:
        return np.concatenate([patch.audio for patch in self.patches])

    def check_order(self) -> None:
        """Admitted first, then patches 0, 1, 2, ..."""
        assert all(isinstance(event, Admitted) == (i == 0) for i, event in enumerate(self.events))
        assert [patch.index for patch in self.patches] == list(range(len(self.patches)))


class Harness:
    """An engine on a checkpoint folder, without a thread."""

    def __init__(
        self, folder: Path, config: EngineConfig = SMALL, noise: NoiseSource | None = None,
        device: torch.device = CPU,
    ) -> None:
        self.config = config
        self.model: ModelConfig = load_config(folder)
        self.tokenizer = TextTokenizer.from_folder(folder)
        self.core: EngineCore = build_core(config, self.model, folder, device, noise)
        self._fanout = Fanout()
        self._next_id = 0

    def prepare(self, request: SpeechRequest) -> EngineRequest:
        return prepare(request, self.model, self.config, self.tokenizer, lambda: 1)

    def add(self, request: SpeechRequest | EngineRequest) -> Received:
        """Queue a request; the stream's id is the number of earlier calls."""
        received = Received()
        engine_request = self.prepare(request) if isinstance(request, SpeechRequest) else request
        self._fanout.add(self._next_id, received)
        loading = self.core.add(self._next_id, engine_request)
        if loading is not None:
            loading.exception()  # waits
            self.core.enter(self._next_id)
        self._next_id += 1
        return received

    def step(self) -> None:
        """One engine step, and its events to their streams."""
        self.core.step()
        self._fanout.deliver(self.core.take_events())

    def encode(self, waveform: FloatArray, pad: PadSide) -> FloatArray:
        """Latents of one waveform, when all else is done, too."""
        encoding = self.core.encode(waveform, pad)
        self.drain()
        return encoding.result()

    def cancel(self, stream_id: int) -> None:
        self.core.cancel(stream_id)
        self._fanout.deliver(self.core.take_events())

    def drain(self) -> None:
        while self.core.has_work:
            self.step()
        self._fanout.deliver(self.core.take_events())  # of streams that never ran

    def run_staggered(
        self, requests: Iterable[SpeechRequest], steps_between: int, admits: bool = False
    ) -> list[Received]:
        """All of them, so many steps after one another, to their ends. `admits`: before the steps, if they can be."""
        received = []
        for request in requests:
            received.append(self.add(request))
            if admits:
                self.core.admit()
            for _ in range(steps_between):
                self.step()
        self.drain()
        return received

    def run(self, request: SpeechRequest | EngineRequest) -> Received:
        """One request alone."""
        received = self.add(request)
        self.drain()
        return received
