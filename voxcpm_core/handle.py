"""What Triton's and Python's side know of an engine, wherever it runs."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Protocol

from voxcpm_core.config.engine import EngineConfig
from voxcpm_core.config.model import ModelConfig
from voxcpm_core.lora.facts import LoraFacts
from voxcpm_core.text.tokenizer import TextTokenizer
from voxcpm_core.types import EngineRequest, EngineStats, EventSink, FloatArray, PadSide


class EngineHandle(Protocol):
    """A started engine.

    Events of a stream: `Admitted`, then `Patch` after `Patch`, the last with a `finish_reason`; or `Failed`
    at any time, after which nothing follows. They come from the engine's thread: a sink is quick and never raises.
    """

    @property
    def model(self) -> ModelConfig: ...

    @property
    def config(self) -> EngineConfig: ...

    @property
    def tokenizer(self) -> TextTokenizer: ...

    def submit(self, request: EngineRequest, sink: EventSink) -> int:
        """Queue a request and return its stream id; events may arrive before this returns."""
        ...

    def cancel(self, stream_id: int) -> None:
        """Idempotent. The stream then gets `Failed` with CANCELLED, unless it had ended."""
        ...

    def encode(self, waveform: FloatArray, pad: PadSide) -> Future[FloatArray]:
        """Latents [frames, feat_dim] of mono audio [samples] at the encoder's rate; fails with RequestError."""
        ...

    def check_lora(self, path: str) -> Future[LoraFacts]:
        """What an adapter's folder, below the folder of all adapters, holds; fails with RequestError."""
        ...

    def stats(self) -> EngineStats: ...

    @property
    def is_ready(self) -> bool:
        """Whether requests are taken: not while a worker is started again, nor after `close`."""
        ...

    def close(self) -> None:
        """End every stream with `Failed` and give the device back."""
        ...
