"""A passage spoken by threads: one reads the text and sends requests, one more for each request that runs."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

from voxcpm_client.cancellation import Cancellation
from voxcpm_client.errors import InvalidText
from voxcpm_client.passage.arriving import Sentence
from voxcpm_client.passage.passage import Passage
from voxcpm_client.passage.plan import Heard, PassagePlan
from voxcpm_client.types import Chunk

# (text, request_id, options, cancellation): chunks
Speak = Callable[[str, str, dict[str, Any], Cancellation], Iterable[Chunk]]
_END = None


def speak_passage(speak: Speak, pieces: Iterable[str], passage: Passage) -> Generator[Chunk, None, None]:
    """The chunks of all sentences, joined. Closing the generator cancels every request that runs.

    `pieces` is read in a thread of its own, which a close cannot interrupt: it ends with the piece it waits for.
    """
    cancellation = Cancellation()
    reader = _Reader(speak, pieces, passage, cancellation)
    reader.start()
    joiner = passage.joiner
    try:
        has_begun = False
        for utterance in reader.utterances():
            yield from _present(joiner.begin(utterance.sentence.pause_ms))
            for chunk in utterance.chunks():
                yield from _present(joiner.feed(chunk))
            reader.room.release()
            has_begun = True
        if not has_begun:
            raise InvalidText("the text holds nothing that can be spoken")
        yield joiner.finish()
    finally:
        cancellation.cancel()
        reader.room.release()


def _present(chunk: Chunk | None) -> Iterator[Chunk]:
    if chunk is not None:
        yield chunk


class _Inbox:
    """Items from one thread to another, up to an end or an error."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def put(self, item: object) -> None:
        self._queue.put(item)

    def __iter__(self) -> Iterator[Any]:
        while (item := self._queue.get()) is not _END:
            if isinstance(item, Exception):
                raise item
            yield item


class _Utterance(threading.Thread):
    """One request, read as fast as it comes."""

    def __init__(self, speak: Speak, sentence: Sentence, plan: PassagePlan, cancellation: Cancellation) -> None:
        super().__init__(name="voxcpm-sentence", daemon=True)
        self.sentence = sentence
        self.has_failed = False
        self._speak = speak
        self._plan = plan
        self._request_id, self._options = plan.next_request()
        self._cancellation = cancellation
        self._inbox = _Inbox()

    def chunks(self) -> Iterator[Chunk]:
        return iter(self._inbox)

    def run(self) -> None:
        heard = Heard(self.sentence.text)
        try:
            for chunk in self._speak(self.sentence.text, self._request_id, self._options, self._cancellation):
                self._inbox.put(chunk)
                heard.add(chunk)
        except Exception as error:
            self.has_failed = True
            self._inbox.put(error)
        else:
            self._plan.learn(heard)
            self._inbox.put(_END)


class _Reader(threading.Thread):
    """Reads the text and starts utterances, at most `ahead` more than the one that is heard."""

    def __init__(self, speak: Speak, pieces: Iterable[str], passage: Passage, cancellation: Cancellation) -> None:
        super().__init__(name="voxcpm-text", daemon=True)
        self.room = threading.Semaphore(1 + passage.ahead)
        self._speak = speak
        self._pieces = pieces
        self._text = passage.text
        self._plan = passage.plan
        self._cancellation = cancellation
        self._inbox = _Inbox()

    def utterances(self) -> Iterator[_Utterance]:
        return iter(self._inbox)

    def run(self) -> None:
        try:
            self._read()
        except Exception as error:
            self._inbox.put(error)
        else:
            self._inbox.put(_END)

    def _read(self) -> None:
        last: _Utterance | None = None
        for sentence in self._sentences():
            self.room.acquire()
            if last is not None and self._plan.needs_all_before:
                last.join()
            if self._cancellation.is_cancelled or (last is not None and last.has_failed):
                return
            last = _Utterance(self._speak, sentence, self._plan, self._cancellation)
            last.start()
            self._inbox.put(last)

    def _sentences(self) -> Iterator[Sentence]:
        for piece in self._pieces:
            if self._cancellation.is_cancelled:
                return
            yield from self._text.feed(piece)
        yield from self._text.finish()
