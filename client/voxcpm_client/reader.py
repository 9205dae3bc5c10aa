"""From Triton's responses of one stream to chunks, checked against the contract."""

from __future__ import annotations

from tritonclient.grpc import service_pb2

from voxcpm_client.error_texts import error_from_message
from voxcpm_client.errors import StreamBroken, VoxError
from voxcpm_client.outputs import BOOL, INT32, INT64, Outputs
from voxcpm_client.types import Chunk


class StreamReader:
    """Takes the responses of one request in order; `close` when the stream has ended.

    An error of the server is kept in `error` until then: it ends the stream anyway, and a call that is cancelled while
    the server completes it can stay behind in old servers (2.51) and block the unloading of the model.
    """

    def __init__(self) -> None:
        self.error: VoxError | None = None
        self.num_chunks = 0
        self._saw_last = False

    def feed(self, response: service_pb2.ModelStreamInferResponse) -> Chunk | None:
        """The chunk in a response; None for an error and for a bare FINAL. Raises StreamBroken for a wrong chunk."""
        if response.error_message:
            self.error = self.error or error_from_message(response.error_message)
        if self.error is not None or not response.infer_response.outputs:
            return None
        chunk = _chunk(Outputs(response.infer_response))
        self._check(chunk)
        return chunk

    def close(self) -> None:
        """Say that no response will follow. Raises the server's error, or StreamBroken without a last chunk."""
        if self.error is not None:
            raise self.error
        if not self._saw_last:
            raise StreamBroken(f"the stream ended after {self.num_chunks} chunks, before its last one")

    def _check(self, chunk: Chunk) -> None:
        if self._saw_last:
            raise StreamBroken(f"chunk {chunk.index} came after the last one")
        if chunk.index != self.num_chunks:
            raise StreamBroken(f"chunk {chunk.index} came where chunk {self.num_chunks} was due")
        self.num_chunks += 1
        self._saw_last = chunk.is_last


def _chunk(outputs: Outputs) -> Chunk:
    return Chunk(
        audio=outputs.data("audio"),
        index=outputs.number("chunk_index", INT32),
        num_samples=outputs.number("num_samples", INT32),
        sample_rate=outputs.number("sample_rate", INT32),
        is_last=outputs.number("is_last", BOOL),
        finish_reason=outputs.data("finish_reason").decode(),
        seed=outputs.number("used_seed" if "used_seed" in outputs else "seed", INT64),  # an ensemble's, and the model's
        request_id=outputs.data("request_id").decode(),
        latents=outputs.matrix("latents"),
    )
