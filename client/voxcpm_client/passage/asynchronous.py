"""A passage spoken by tasks of an event loop: one reads the text and sends requests, one more for each that runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable
from contextlib import aclosing
from typing import Any

from voxcpm_client.errors import InvalidText
from voxcpm_client.passage.arriving import Sentence
from voxcpm_client.passage.passage import Passage
from voxcpm_client.passage.plan import Heard, PassagePlan
from voxcpm_client.types import Chunk

# (text, request_id, options): chunks
Speak = Callable[[str, str, dict[str, Any]], AsyncGenerator[Chunk, None]]
_END = None


async def aspeak_passage(
    speak: Speak, pieces: AsyncIterable[str] | Iterable[str], passage: Passage
) -> AsyncGenerator[Chunk, None]:
    """`speak_passage` for asyncio; `pieces` that are no asynchronous iterable must not block."""
    reader = _Reader(speak, pieces, passage)
    joiner = passage.joiner
    try:
        has_begun = False
        async for utterance in reader.inbox:
            chunk = joiner.begin(utterance.sentence.pause_ms)
            if chunk is not None:
                yield chunk
            async for part in utterance.inbox:
                chunk = joiner.feed(part)
                if chunk is not None:
                    yield chunk
            reader.room.release()
            has_begun = True
        if not has_begun:
            raise InvalidText("the text holds nothing that can be spoken")
        yield joiner.finish()
    finally:
        await reader.cancel()


class _Inbox:
    """Items from one task to another, up to an end or an error."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Any] = asyncio.Queue()

    def put(self, item: object) -> None:
        self._queue.put_nowait(item)

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (item := await self._queue.get()) is not _END:
            if isinstance(item, Exception):
                raise item
            yield item


class _Utterance:
    """One request, read as fast as it comes."""

    def __init__(self, speak: Speak, sentence: Sentence, plan: PassagePlan) -> None:
        self.sentence = sentence
        self.inbox = _Inbox()
        self.has_failed = False
        self._plan = plan
        self.task = asyncio.create_task(self._read(speak(sentence.text, *plan.next_request())), name="voxcpm-sentence")

    async def _read(self, spoken: AsyncGenerator[Chunk, None]) -> None:
        heard = Heard(self.sentence.text)
        try:
            async with aclosing(spoken) as chunks:
                async for chunk in chunks:
                    self.inbox.put(chunk)
                    heard.add(chunk)
        except Exception as error:
            self.has_failed = True
            self.inbox.put(error)
        else:
            self._plan.learn(heard)
            self.inbox.put(_END)


class _Reader:
    """Reads the text and starts utterances, at most `ahead` more than the one that is heard."""

    def __init__(self, speak: Speak, pieces: AsyncIterable[str] | Iterable[str], passage: Passage) -> None:
        self.room = asyncio.Semaphore(1 + passage.ahead)
        self.inbox = _Inbox()
        self._speak = speak
        self._pieces = pieces
        self._text = passage.text
        self._plan = passage.plan
        self._tasks = [asyncio.create_task(self._run(), name="voxcpm-text")]

    async def cancel(self) -> None:
        """Cancel every request that runs, and the reading."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self) -> None:
        try:
            await self._read()
        except Exception as error:
            self.inbox.put(error)
        else:
            self.inbox.put(_END)

    async def _read(self) -> None:
        last: _Utterance | None = None
        async for sentence in self._sentences():
            await self.room.acquire()
            if last is not None and self._plan.needs_all_before:
                await asyncio.wait([last.task])
            if last is not None and last.has_failed:
                return
            last = _Utterance(self._speak, sentence, self._plan)
            self._tasks.append(last.task)
            self.inbox.put(last)

    async def _sentences(self) -> AsyncIterator[Sentence]:
        async for piece in self._pieces if isinstance(self._pieces, AsyncIterable) else _in_turn(self._pieces):
            for sentence in self._text.feed(piece):
                yield sentence
        for sentence in self._text.finish():
            yield sentence


async def _in_turn(pieces: Iterable[str]) -> AsyncIterator[str]:
    for piece in pieces:
        yield piece
