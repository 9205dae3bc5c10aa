"""Audio to latents in the engine, for callers who are no streams."""

from __future__ import annotations

import threading

import numpy as np

from voxcpm_core.audio.condition import checked_condition
from voxcpm_core.errors import RequestError
from voxcpm_core.handle import EngineHandle
from voxcpm_core.serving.adapter import Adapter
from voxcpm_core.types import PAD_SIDES, Condition, FloatArray, PadSide


class Encoding:
    """Thread-safe. One waveform after the other, so that files never stand in a row before the audio of requests."""

    def __init__(self, engine: EngineHandle, adapter: Adapter) -> None:
        self._engine = engine
        self._adapter = adapter
        self._turn = threading.Lock()

    def encode_file(self, data: bytes, role: str) -> FloatArray:
        """Latents [frames, feat_dim] of a "prompt" or "reference", as a request with the file would make them.

        Raises INVALID_AUDIO, and what ends the engine meanwhile.
        """
        model, max_seconds = self._engine.model, self._engine.config.max_audio_seconds
        waveform = Condition(waveform=self._adapter.decode(data))
        checked = checked_condition(role, waveform, model, max_seconds).waveform
        assert checked is not None
        return self.encode(checked, PAD_SIDES[role])

    def encode(self, waveform: FloatArray, pad: PadSide) -> FloatArray:
        """Latents [frames, feat_dim] of mono audio [samples] at the encoder's rate."""
        with self._turn:
            try:
                latents = self._engine.encode(waveform, pad).result()
            except RequestError as error:
                raise RequestError(error.code, str(error)) from None  # one error may have ended many
        return np.ascontiguousarray(latents, np.float32)
