"""One-call forms of `Client`'s methods, for scripts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
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
        request_id: str


def stream(text: str, **options: Unpack[CallOptions]) -> Generator[Chunk, None, None]:
    """`Client(...).stream(text, ...)`"""
    client, rest = _split(options)
    return client.stream(text, **rest)


def synthesize(text: str, **options: Unpack[CallOptions]) -> Speech:
    """`Client(...).synthesize(text, ...)`"""
    client, rest = _split(options)
    return client.synthesize(text, **rest)


def astream(text: str, **options: Unpack[CallOptions]) -> AsyncGenerator[Chunk, None]:
    """`Client(...).astream(text, ...)`"""
    client, rest = _split(options)
    return client.astream(text, **rest)


async def asynthesize(text: str, **options: Unpack[CallOptions]) -> Speech:
    """`Client(...).asynthesize(text, ...)`"""
    client, rest = _split(options)
    return await client.asynthesize(text, **rest)


def _split(options: CallOptions) -> tuple[Client, Any]:
    rest: dict[str, Any] = dict(options)
    settings = {name: rest.pop(name) for name in ("url", "model", "timeout_s", "gap_timeout_s") if name in rest}
    return Client(**settings), rest
