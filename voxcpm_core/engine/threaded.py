"""The engine in a thread of this process: for tests and measurements. Callers have it in a worker process."""

from __future__ import annotations

import itertools
from concurrent.futures import Future

from voxcpm_core.checkpoint.opened import open_checkpoint
from voxcpm_core.config import EngineConfig, ModelConfig
from voxcpm_core.engine.build import build_warm_core
from voxcpm_core.engine.core import EngineCore
from voxcpm_core.engine.loop import EngineLoop
from voxcpm_core.errors import shutting_down
from voxcpm_core.fanout import Fanout
from voxcpm_core.lora.facts import LoraFacts
from voxcpm_core.text.tokenizer import TextTokenizer
from voxcpm_core.types import EngineRequest, EngineStats, EventSink, FloatArray, PadSide


def start_engine(config: EngineConfig, device: str) -> ThreadedEngine:
    """A warm engine on `device` ("cpu", "cuda:1"), as `worker.start_worker` gives one. Raises StartupError."""
    checkpoint = open_checkpoint(config.model)
    core = build_warm_core(config, checkpoint, device)
    return ThreadedEngine(core, checkpoint.model, config, checkpoint.tokenizer)


class ThreadedEngine:
    """Thread-safe handle; events are delivered from the engine's thread, so sinks must be quick."""

    def __init__(
        self, core: EngineCore, model: ModelConfig, config: EngineConfig, tokenizer: TextTokenizer
    ) -> None:
        self.model = model
        self.config = config
        self.tokenizer = tokenizer
        self._ids = itertools.count()
        self._fanout = Fanout()
        self._loop = EngineLoop(core, self._fanout.deliver)

    @property
    def core(self) -> EngineCore:
        """Its thread's alone while requests run."""
        return self._loop.core

    @property
    def is_ready(self) -> bool:
        return self._loop.is_running

    def submit(self, request: EngineRequest, sink: EventSink) -> int:
        """Queue a validated request and return its stream id. Never blocks."""
        stream_id = next(self._ids)
        self._fanout.add(stream_id, sink)
        if not self._loop.add(stream_id, request):
            self._fanout.fail(stream_id, shutting_down())
        return stream_id

    def cancel(self, stream_id: int) -> None:
        """Ask for a stream to end with CANCELLED; nothing happens when it has ended already."""
        self._loop.cancel(stream_id)

    def encode(self, waveform: FloatArray, pad: PadSide) -> Future[FloatArray]:
        """Latents [frames, feat_dim] of mono audio [samples] at the encoder's rate; made between steps."""
        return self._loop.encode(waveform, pad)

    def check_lora(self, path: str) -> Future[LoraFacts]:
        """What an adapter's folder, below the folder of all adapters, holds; fails with RequestError."""
        return self._loop.check_lora(path)

    def stats(self) -> EngineStats:
        return self.core.stats()

    def close(self) -> None:
        """End all streams with NOT_READY and stop the thread."""
        self._loop.close()
