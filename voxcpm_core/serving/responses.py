"""Chunks and errors as Triton responses."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from voxcpm_core.serving.options import OutputOptions
from voxcpm_core.types import FloatArray

if TYPE_CHECKING:
    from voxcpm_core.serving.chunker import Chunk  # brings encoders along, which a door has no use for

NamedTensor = tuple[str, NDArray[Any]]


@dataclass(frozen=True)
class ChainInfo:
    """What the models behind this one in an ensemble have to know of a stream."""

    stream_id: str  # known to nobody else: request ids may be empty or another's
    bitrate: int  # kbit/s
    vae_context: FloatArray  # [frames, feat_dim]: latents that the decoder starts with, unheard
    frame_s: float  # audio that a frame of latents becomes


@dataclass(frozen=True)
class StreamInfo:
    """What every response of one request repeats."""

    request_id: str
    seed: int
    sample_rate: int
    options: OutputOptions
    chain: ChainInfo | None = None


class Responses(Protocol):
    """Builds what a response sender takes."""

    @property
    def final_flag(self) -> int:
        """What `send` takes as `flags` with the last response."""

    def data(self, tensors: Iterable[NamedTensor]) -> Any: ...

    def error(self, message: str, triton_code: str) -> Any: ...


class TritonResponses:
    """With the backend's module, which exists only inside Triton's Python stub."""

    def __init__(self, pb_utils: Any) -> None:
        self._tensor: Callable[..., Any] = pb_utils.Tensor
        self._response: Callable[..., Any] = pb_utils.InferenceResponse
        self._error: Any = pb_utils.TritonError
        self.final_flag: int = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL

    def data(self, tensors: Iterable[NamedTensor]) -> Any:
        return self._response(output_tensors=[self._tensor(name, array) for name, array in tensors])

    def error(self, message: str, triton_code: str) -> Any:
        return self._response(output_tensors=[], error=self._error(message, getattr(self._error, triton_code)))


def chunk_tensors(chunk: Chunk, info: StreamInfo) -> list[NamedTensor]:
    """The outputs of a data response: `audio` when it was asked for, `latents` when the chunk has them."""
    tensors: list[NamedTensor] = [
        ("chunk_index", np.array([chunk.index], np.int32)),
        ("num_samples", np.array([chunk.num_samples], np.int32)),
        ("sample_rate", np.array([info.sample_rate], np.int32)),
        ("request_id", _bytes(info.request_id.encode())),
        ("is_last", np.array([chunk.is_last], np.bool_)),
        ("finish_reason", _bytes(chunk.finish_reason.encode())),
        ("seed", np.array([info.seed], np.int64)),
    ]
    if info.options.wants_audio:
        audio = base64.b64encode(chunk.audio) if info.options.base64 else chunk.audio
        tensors.insert(0, ("audio", _bytes(audio)))
    if chunk.latents is not None:
        tensors.append(("latents", chunk.latents))
    if info.chain is not None:
        context = info.chain.vae_context
        tensors += [
            ("stream_id", _bytes(info.chain.stream_id.encode())),
            ("bitrate", np.array([info.chain.bitrate], np.int32)),
            ("vae_context", context if chunk.index == 0 else context[:0]),
        ]
    return tensors


def _bytes(value: bytes) -> NDArray[Any]:
    return np.array([value], dtype=np.object_)
