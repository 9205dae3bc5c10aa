"""Streaming speech from a Triton server: blocking and asyncio."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from voxcpm_client.reader import StreamReader
from voxcpm_client.request import build_request
from voxcpm_client.speech import SpeechCollector
from voxcpm_client.transport import aread_responses, check_url, read_responses
from voxcpm_client.types import Chunk, Speech, SpeechOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class Client:
    """Where to send requests and how long to wait. Holds no connection; safe to share between threads and loops.

    `timeout_s` bounds a whole request, its time in Triton's queue included; `gap_timeout_s` bounds the silence between
    two chunks, which is how a server process that died in the middle is noticed. None waits for ever.

    All methods take the options of `SpeechOptions` by name. They raise subclasses of `VoxError`, TypeError for an
    unknown option or a text that is no str, and OSError for an audio file that cannot be read. A `url` that cannot be
    a gRPC address is InvalidUrl at once.
    """

    url: str = "localhost:8001"
    model: str = "voxcpm"
    timeout_s: float | None = 900.0
    gap_timeout_s: float | None = 30.0

    def __post_init__(self) -> None:
        check_url(self.url)

    def stream(
        self, text: str, *, request_id: str = "", **options: Unpack[SpeechOptions]
    ) -> Generator[Chunk, None, None]:
        """Chunks as they are made. The request is sent at the first `next`; closing the iterator cancels it."""
        request = build_request(self.model, text, request_id, self.timeout_s, options)
        reader = StreamReader()
        with closing(read_responses(self.url, request, self.timeout_s, self.gap_timeout_s)) as responses:
            for response in responses:
                chunk = reader.feed(response)
                if chunk is not None:
                    yield chunk
        reader.close()

    async def astream(
        self, text: str, *, request_id: str = "", **options: Unpack[SpeechOptions]
    ) -> AsyncGenerator[Chunk, None]:
        """`stream` for asyncio; `aclose` or cancelling the task cancels the request."""
        request = build_request(self.model, text, request_id, self.timeout_s, options)
        reader = StreamReader()
        async with aclosing(aread_responses(self.url, request, self.timeout_s, self.gap_timeout_s)) as responses:
            async for response in responses:
                chunk = reader.feed(response)
                if chunk is not None:
                    yield chunk
        reader.close()

    def synthesize(self, text: str, *, request_id: str = "", **options: Unpack[SpeechOptions]) -> Speech:
        """The whole utterance; a wav has exact sizes in its header."""
        collector = SpeechCollector(options.get("format"))
        for chunk in self.stream(text, request_id=request_id, **options):
            collector.add(chunk)
        return collector.speech()

    async def asynthesize(self, text: str, *, request_id: str = "", **options: Unpack[SpeechOptions]) -> Speech:
        """`synthesize` for asyncio."""
        collector = SpeechCollector(options.get("format"))
        async with aclosing(self.astream(text, request_id=request_id, **options)) as chunks:
            async for chunk in chunks:
                collector.add(chunk)
        return collector.speech()
