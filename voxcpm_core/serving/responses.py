"""Chunks and errors as Triton responses."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from voxcpm_core.errors import RequestError
from voxcpm_core.serving.chunker import Chunk
from voxcpm_core.serving.options import OutputOptions


@dataclass(frozen=True)
class StreamInfo:
    """What every response of one request repeats."""

    request_id: str
    seed: int
    sample_rate: int
    options: OutputOptions


class Responses:
    """Builds responses with the backend's module, which exists only inside Triton's Python stub."""

    def __init__(self, pb_utils: Any) -> None:
        self._tensor: Callable[..., Any] = pb_utils.Tensor
        self._response: Callable[..., Any] = pb_utils.InferenceResponse
        self._error: Any = pb_utils.TritonError
        self.final_flag: int = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL

    def data(self, chunk: Chunk, info: StreamInfo) -> Any:
        """A data response: `audio` when it was asked for, `latents` when the chunk has them."""
        tensors = [
            self._tensor("chunk_index", np.array([chunk.index], np.int32)),
            self._tensor("num_samples", np.array([chunk.num_samples], np.int32)),
            self._tensor("sample_rate", np.array([info.sample_rate], np.int32)),
            self._bytes("request_id", info.request_id.encode()),
            self._tensor("is_last", np.array([chunk.is_last], np.bool_)),
            self._bytes("finish_reason", chunk.finish_reason.encode()),
            self._tensor("seed", np.array([info.seed], np.int64)),
        ]
        if info.options.wants_audio:
            audio = base64.b64encode(chunk.audio) if info.options.base64 else chunk.audio
            tensors.insert(0, self._bytes("audio", audio))
        if chunk.latents is not None:
            tensors.append(self._tensor("latents", chunk.latents))
        return self._response(output_tensors=tensors)

    def error(self, error: RequestError, request_id: str) -> Any:
        code = getattr(self._error, error.code.triton_code)
        return self._response(output_tensors=[], error=self._error(error.wire(request_id), code))

    def _bytes(self, name: str, value: bytes) -> Any:
        return self._tensor(name, np.array([value], dtype=np.object_))
