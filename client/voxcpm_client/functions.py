"""One-call forms of `Client`'s methods, for scripts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Generator, Iterable
from contextlib import aclosing, closing
from typing import TYPE_CHECKING, Any

from voxcpm_client.client import Client
from voxcpm_client.types import Chunk, Speech, SpeechOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

    class CallOptions(SpeechOptions, total=False):
        """Options of the request, and fields of `Client`."""

        url: str
        model: str
        timeout_s: float | None
        gap_timeout_s: float | None
        retries: int
        request_id: str

    class TextOptions(CallOptions, total=False):
        """How a passage is split."""

        ahead: int
        max_chars: int
        first_max_chars: int


_CLIENT_FIELDS = ("url", "model", "timeout_s", "gap_timeout_s", "retries")


def stream(text: str, **options: Unpack[CallOptions]) -> Generator[Chunk, None, None]:
    """`Client(...).stream(text, ...)`"""
    client, rest = _split(options)
    return _closing(client, client.stream(text, **rest))


def synthesize(text: str, **options: Unpack[CallOptions]) -> Speech:
    """`Client(...).synthesize(text, ...)`"""
    client, rest = _split(options)
    with client:
        return client.synthesize(text, **rest)


def astream(text: str, **options: Unpack[CallOptions]) -> AsyncGenerator[Chunk, None]:
    """`Client(...).astream(text, ...)`"""
    client, rest = _split(options)
    return _aclosing(client, client.astream(text, **rest))


async def asynthesize(text: str, **options: Unpack[CallOptions]) -> Speech:
    """`Client(...).asynthesize(text, ...)`"""
    client, rest = _split(options)
    async with client:
        return await client.asynthesize(text, **rest)


def stream_text(text: Iterable[str] | str, **options: Unpack[TextOptions]) -> Generator[Chunk, None, None]:
    """`Client(...).stream_text(text, ...)`"""
    client, rest = _split(options)
    return _closing(client, client.stream_text(text, **rest))


def astream_text(
    text: AsyncIterable[str] | Iterable[str] | str, **options: Unpack[TextOptions]
) -> AsyncGenerator[Chunk, None]:
    """`Client(...).astream_text(text, ...)`"""
    client, rest = _split(options)
    return _aclosing(client, client.astream_text(text, **rest))


def _closing(client: Client, chunks: Generator[Chunk, None, None]) -> Generator[Chunk, None, None]:
    with client, closing(chunks):
        yield from chunks


async def _aclosing(client: Client, chunks: AsyncGenerator[Chunk, None]) -> AsyncGenerator[Chunk, None]:
    async with client, aclosing(chunks):
        async for chunk in chunks:
            yield chunk


def _split(options: CallOptions) -> tuple[Client, Any]:
    rest: dict[str, Any] = dict(options)
    settings = {name: rest.pop(name) for name in _CLIENT_FIELDS if name in rest}
    return Client(**settings), rest
