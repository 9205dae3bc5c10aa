"""A model of the ensemble that keeps state for each stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from voxcpm_core.chain.kept import FORGOTTEN_S, KeptStreams, Part
from voxcpm_core.errors import ErrorCode, RequestError
from voxcpm_core.serving.channel import Channel
from voxcpm_core.serving.parameters import utf8_or_none
from voxcpm_core.serving.responses import NamedTensor, TritonResponses
from voxcpm_core.serving.tensors import InputTensors


class Step:
    """What Triton calls, one chunk after the other: a single instance, so chunks keep their order."""

    def __init__(
        self, pb_utils: Any, streams: KeptStreams, begin: Callable[[InputTensors], Part],
        leave: Callable[[str], None],
        taken: Callable[[str, int], None] = lambda stream_id, num_chunks: None,
    ) -> None:
        """`leave` is told which streams have ended early, `taken` how many chunks of a stream have been worked off."""
        self._streams = streams
        self._begin = begin
        self._leave = leave
        self._taken = taken
        self._logger = pb_utils.Logger
        self._responses = TritonResponses(pb_utils)

    def execute(self, requests: Iterable[Any]) -> None:
        """Answer each chunk with one response or none; never raises."""
        for request in requests:
            channel = Channel(request.get_response_sender(), self._responses, utf8_or_none(request.request_id) or "")
            with channel.answering(self._logger.log_error):
                self._take(InputTensors(request.inputs()), channel)
        self._streams.forget(self._streams.silent(FORGOTTEN_S))

    def _take(self, tensors: InputTensors, channel: Channel) -> None:
        stream_id, index = _text(tensors, "stream_id"), tensors.integer("chunk_index")
        if channel.is_cancelled():
            self._end(stream_id)
            raise RequestError(ErrorCode.CANCELLED, "cancelled by the caller")
        try:
            if index == 0:
                self._streams.begin(stream_id, self._begin(tensors))
            kept = self._streams.get(stream_id)
            if kept is None or kept.next_index != index:
                raise RequestError(ErrorCode.INTERNAL, "a chunk of the stream is missing")
            is_last = bool(tensors.boolean("is_last"))
            outputs = kept.part.take(tensors, is_last)
        except Exception:
            self._end(stream_id)
            raise
        kept.next_index += 1
        kept.used_s = time.monotonic()
        if is_last:
            self._streams.forget([stream_id])
        if outputs is not None:
            channel.send(outputs)
        channel.finish()
        self._taken(stream_id, kept.next_index)

    def _end(self, stream_id: str) -> None:
        self._streams.forget([stream_id])
        self._leave(stream_id)


def passed_on(tensors: InputTensors, *names: str) -> list[NamedTensor]:
    """Inputs that are outputs, too."""
    return [(name, tensors.array(name)) for name in names]


def _text(tensors: InputTensors, name: str) -> str:
    value = tensors.text(name, ErrorCode.INTERNAL)
    if value is None:
        raise RequestError(ErrorCode.INTERNAL, f"{name} is missing")
    return value
