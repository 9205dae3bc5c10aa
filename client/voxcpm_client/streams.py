"""One utterance as chunks: its attempts, each a stream of responses, read and checked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import aclosing, closing
from dataclasses import dataclass
from typing import Any

from tritonclient.grpc import service_pb2

from voxcpm_client.cancellation import Cancellation
from voxcpm_client.channels import Channels
from voxcpm_client.errors import VoxError
from voxcpm_client.reader import StreamReader
from voxcpm_client.request import build_request, limit_queue_time
from voxcpm_client.retry import Attempts
from voxcpm_client.transport import aread_responses, read_responses
from voxcpm_client.types import Chunk


@dataclass(frozen=True)
class Connection:
    """Where requests go and what bounds them; the fields of `Client`."""

    channels: Channels
    url: str
    model: str
    timeout_s: float | None
    gap_timeout_s: float | None
    retries: int

    def stream(
        self, text: str, request_id: str, options: Mapping[str, Any], cancellation: Cancellation
    ) -> Generator[Chunk, None, None]:
        """Chunks in order; ends early with Cancelled when `cancellation` comes."""
        request = build_request(self.model, text, request_id, options)
        attempts = Attempts(self.retries, self.timeout_s)
        while True:
            reader = StreamReader()
            try:
                yield from self._attempt(request, attempts.remaining_s(), reader, cancellation)
                return
            except VoxError as error:
                delay_s = attempts.delay_s(error, reader.num_chunks)
                if delay_s is None or cancellation.wait(delay_s):
                    raise

    async def astream(self, text: str, request_id: str, options: Mapping[str, Any]) -> AsyncGenerator[Chunk, None]:
        """`stream` for asyncio."""
        request = build_request(self.model, text, request_id, options)
        attempts = Attempts(self.retries, self.timeout_s)
        while True:
            reader = StreamReader()
            try:
                async with aclosing(self._aattempt(request, attempts.remaining_s(), reader)) as chunks:
                    async for chunk in chunks:
                        yield chunk
                return
            except VoxError as error:
                delay_s = attempts.delay_s(error, reader.num_chunks)
                if delay_s is None:
                    raise
            await asyncio.sleep(delay_s)

    def _attempt(
        self,
        request: service_pb2.ModelInferRequest,
        timeout_s: float | None,
        reader: StreamReader,
        cancellation: Cancellation,
    ) -> Generator[Chunk, None, None]:
        limit_queue_time(request, timeout_s)
        where = (self.channels, self.url, request, timeout_s, self.gap_timeout_s, cancellation)
        try:
            with closing(read_responses(*where)) as responses:
                for response in responses:
                    chunk = reader.feed(response)
                    if chunk is not None:
                        yield chunk
        except VoxError as error:
            raise reader.error or error from None
        reader.close()

    async def _aattempt(
        self, request: service_pb2.ModelInferRequest, timeout_s: float | None, reader: StreamReader
    ) -> AsyncGenerator[Chunk, None]:
        limit_queue_time(request, timeout_s)
        where = (self.channels, self.url, request, timeout_s, self.gap_timeout_s)
        try:
            async with aclosing(aread_responses(*where)) as responses:
                async for response in responses:
                    chunk = reader.feed(response)
                    if chunk is not None:
                        yield chunk
        except VoxError as error:
            raise reader.error or error from None
        reader.close()
