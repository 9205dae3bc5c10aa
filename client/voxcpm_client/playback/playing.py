"""Chunks into a player."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Generator, Iterable

from voxcpm_client.errors import InvalidParameter
from voxcpm_client.playback.players import Player, PlayerOpener, find_player
from voxcpm_client.speech import SpeechCollector
from voxcpm_client.types import Chunk, Speech

# Chunks that wait for the player: enough that a late one is told from a player that is busy, few enough that speech of
# a long text is not made far ahead of what is heard.
_MAX_WAITING = 6


def play(chunks: Iterable[Chunk]) -> Speech:
    """Play a stream of `pcm_s16le` or `wav` while it comes; returns its measures when all was heard.

    Raises NoPlayer before the request is sent when nothing here can play sound, InvalidParameter for another format.
    """
    collector = SpeechCollector(None, keep_audio=False)
    try:
        for chunk in played(chunks, find_player()):
            collector.add(chunk)
    finally:
        if isinstance(chunks, Generator):
            chunks.close()
    return collector.speech()


def played(chunks: Iterable[Chunk], open_player: PlayerOpener) -> Generator[Chunk, None, None]:
    """Pass `chunks` on and play them. Leaving early stops the sound; the end comes when all was heard."""
    speaker: _Speaker | None = None
    try:
        for chunk in chunks:
            samples = _samples(chunk)
            if speaker is None:
                speaker = _Speaker(open_player(chunk.sample_rate))
            speaker.say(samples)
            yield chunk
        if speaker is not None:
            speaker.finish()
            speaker = None
    finally:
        if speaker is not None:
            speaker.abort()


def _samples(chunk: Chunk) -> bytes:
    """The 16-bit samples of a chunk, without the header before them."""
    num_bytes = 2 * chunk.num_samples
    is_plain = len(chunk.audio) == num_bytes
    is_wav = chunk.audio[:4] == b"RIFF" and len(chunk.audio) > num_bytes
    if not is_plain and not is_wav:
        raise InvalidParameter("format: only pcm_s16le and wav can be played while they come")
    return chunk.audio[len(chunk.audio) - num_bytes :]


class _Speaker:
    """A player with a thread of its own, since writing to it blocks."""

    def __init__(self, player: Player) -> None:
        self._player = player
        self._waiting: queue.Queue[bytes | None] = queue.Queue(_MAX_WAITING)
        self._error: Exception | None = None
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="voxcpm-player", daemon=True)
        self._thread.start()

    def say(self, samples: bytes) -> None:
        """Play `samples` after those before; blocks while many wait. Raises what the player raised meanwhile."""
        self._waiting.put(samples)
        if self._error is not None:
            raise self._error

    def finish(self) -> None:
        """Return when all was heard. Raises what the player raised."""
        self._waiting.put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def abort(self) -> None:
        """Be silent at once."""
        self._is_stopped = True
        self._player.stop()
        while self._thread.is_alive():
            with contextlib.suppress(queue.Full):
                self._waiting.put(None, timeout=0.1)
                self._thread.join()

    def _run(self) -> None:
        # After an error the rest is taken and thrown away, so that `say` never blocks for good.
        while (samples := self._waiting.get()) is not None:
            if self._error is None and not self._is_stopped:
                self._attempt(self._player.write, samples)
        if self._error is None and not self._is_stopped:
            self._attempt(self._player.drain)
        self._attempt(self._player.close)

    def _attempt(self, action: Callable[..., None], *arguments: bytes) -> None:
        try:
            action(*arguments)
        except Exception as error:
            self._error = self._error or error
