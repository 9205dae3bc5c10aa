"""Streaming speech from a Triton server: blocking and asyncio."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Generator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING

from voxcpm_client.cancellation import Cancellation
from voxcpm_client.channels import Channels
from voxcpm_client.control.asynchronous import AsyncControlMethods
from voxcpm_client.control.blocking import ControlMethods
from voxcpm_client.control.calls import UnaryCalls
from voxcpm_client.ensemble import format_from
from voxcpm_client.passage.asynchronous import aspeak_passage
from voxcpm_client.passage.blocking import speak_passage
from voxcpm_client.passage.passage import make_passage
from voxcpm_client.speech import SpeechCollector
from voxcpm_client.streams import Connection
from voxcpm_client.transport import check_url
from voxcpm_client.types import Chunk, Speech, SpeechOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class Client(ControlMethods, AsyncControlMethods):
    """Where to send requests and how long to wait. Safe to share between threads and event loops.

    Its streams share one connection, opened at the first request and again when it broke; `close` (`aclose` in an
    event loop) or leaving a `with` block ends it. A forked child connects by itself, but gRPC wants no stream to run
    while a process forks.

    `timeout_s` bounds a whole request, its time in Triton's queue and its retries included; `gap_timeout_s` bounds the
    silence between two chunks, which is how a server process that died in the middle is noticed. None waits for ever.

    A request that has given no chunk yet is sent again, up to `retries` times with growing waits, when the server
    cannot be reached, has no room, drains or is not ready. As soon as a chunk came the error is raised: what was heard
    cannot be taken back, and another attempt would begin anew.

    `token` is the server's admin token, for what changes or shows other people's things (`add_voice`, `remove_voice`,
    `register_lora`, `unregister_lora`, `queue`, `drain`). Without it VOXCPM_ADMIN_TOKEN counts, then what this user's
    `voxcpm-triton serve` on this machine has left for the `url`'s port.

    The methods for speech take the options of `SpeechOptions` by name. All raise subclasses of `VoxError`, TypeError
    for an unknown option or a text that is no str, and OSError for an audio file that cannot be read. A `url` that
    cannot be a gRPC address is InvalidUrl at once.
    """

    url: str = "localhost:8001"
    model: str = "voxcpm"
    timeout_s: float | None = 900.0
    gap_timeout_s: float | None = 30.0
    retries: int = 2
    token: str | None = field(default=None, repr=False)
    _channels: Channels = field(default_factory=Channels, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_url(self.url)

    def stream(
        self, text: str, *, request_id: str = "", **options: Unpack[SpeechOptions]
    ) -> Generator[Chunk, None, None]:
        """Chunks as they are made. The request is sent at the first `next`; closing the iterator cancels it."""
        yield from self._connection().stream(text, request_id, options, Cancellation())

    async def astream(
        self, text: str, *, request_id: str = "", **options: Unpack[SpeechOptions]
    ) -> AsyncGenerator[Chunk, None]:
        """`stream` for asyncio; `aclose` or cancelling the task cancels the request."""
        async with aclosing(self._connection().astream(text, request_id, options)) as chunks:
            async for chunk in chunks:
                yield chunk

    def synthesize(self, text: str, *, request_id: str = "", **options: Unpack[SpeechOptions]) -> Speech:
        """The whole utterance; a wav has exact sizes in its header."""
        collector = SpeechCollector(format_from(self.model, options))
        for chunk in self.stream(text, request_id=request_id, **options):
            collector.add(chunk)
        return collector.speech()

    async def asynthesize(self, text: str, *, request_id: str = "", **options: Unpack[SpeechOptions]) -> Speech:
        """`synthesize` for asyncio."""
        collector = SpeechCollector(format_from(self.model, options))
        async with aclosing(self.astream(text, request_id=request_id, **options)) as chunks:
            async for chunk in chunks:
                collector.add(chunk)
        return collector.speech()

    def stream_text(
        self,
        text: Iterable[str] | str,
        *,
        request_id: str = "",
        ahead: int = 1,
        max_chars: int = 240,
        first_max_chars: int = 80,
        **options: Unpack[SpeechOptions],
    ) -> Generator[Chunk, None, None]:
        """Speech of text that arrives in pieces, as a language model's tokens do, or is long: one stream of chunks.

        The text is split at sentence ends, at commas or spaces where a sentence has more than `max_chars` characters
        (the first one, which is to be heard soon, more than `first_max_chars`). Each sentence is a request with the
        given options; up to `ahead` further ones run while one is heard. The sentences are joined as `pcm_s16le`,
        `pcm_f32le` or `wav`, with pauses and without clicks. Without a prompt or a reference all have the voice of the
        first ones. Every chunk bears the passage's seed, from which each sentence's own is derived. Request ids are
        `request_id-0`, `request_id-1`, ... Closing the iterator cancels all; text that is being waited for then is
        still waited for, by a thread in the background.

        The errors of a sentence are raised in its turn, when all before it was heard, as are those of `text` itself.
        """
        passage = make_passage(self.model, options, request_id, ahead, max_chars, first_max_chars)
        pieces = [text] if isinstance(text, str) else text
        yield from speak_passage(self._connection().stream, pieces, passage)

    async def astream_text(
        self,
        text: AsyncIterable[str] | Iterable[str] | str,
        *,
        request_id: str = "",
        ahead: int = 1,
        max_chars: int = 240,
        first_max_chars: int = 80,
        **options: Unpack[SpeechOptions],
    ) -> AsyncGenerator[Chunk, None]:
        """`stream_text` for asyncio; a `text` that is no asynchronous iterable must not block."""
        passage = make_passage(self.model, options, request_id, ahead, max_chars, first_max_chars)
        pieces = [text] if isinstance(text, str) else text
        async with aclosing(aspeak_passage(self._connection().astream, pieces, passage)) as chunks:
            async for chunk in chunks:
                yield chunk

    def close(self) -> None:
        """End the blocking streams and their connection. A later request opens another one."""
        self._channels.close()

    async def aclose(self) -> None:
        """End the streams of the event loop that runs, and their connection."""
        await self._channels.aclose()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _calls(self) -> UnaryCalls:
        from voxcpm_client.control.token import find_token  # which imports from voxcpm_core; speech does without

        token = self.token or find_token(self.url)
        return UnaryCalls(self._channels, self.url, self.model, self.timeout_s, token)

    def _connection(self) -> Connection:
        return Connection(self._channels, self.url, self.model, self.timeout_s, self.gap_timeout_s, self.retries)
