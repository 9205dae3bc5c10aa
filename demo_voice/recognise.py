"""What PocketSphinx hears, with the model of American English that it ships."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context

import pocketsphinx

from demo_voice.errors_of_words import WordErrors, count_errors
from demo_voice.flite import SAMPLE_RATE_HZ, Pcm
from demo_voice.words import spoken_words

_EDGE_SILENCE_SAMPLES = SAMPLE_RATE_HZ // 4


def recognise(pcm: Pcm) -> list[str]:
    """Words heard in int16 [num_samples] at 16 kHz, in lower case; the same for the same samples."""
    decoder = _decoder()
    silence = bytes(2 * _EDGE_SILENCE_SAMPLES)
    decoder.start_utt()
    decoder.process_raw(silence + pcm.tobytes() + silence, full_utt=True)
    decoder.end_utt()
    hypothesis = decoder.hyp()
    return spoken_words(hypothesis.hypstr) if hypothesis else []


def recognise_all(pcms: Iterable[Pcm], num_processes: int = 1) -> list[list[str]]:
    """`recognise` for many, in their order, in processes of their own."""
    with ProcessPoolExecutor(num_processes, mp_context=get_context("spawn")) as pool:
        return list(pool.map(recognise, pcms))


def word_errors(text: str, heard: list[str]) -> WordErrors:
    """Errors of what was heard of a text."""
    return count_errors(spoken_words(text), heard)


@cache
def _decoder() -> pocketsphinx.Decoder:
    # Over a whole utterance at once: a running mean would make a result depend on what was heard before.
    return pocketsphinx.Decoder(samprate=SAMPLE_RATE_HZ, cmn="batch", loglevel="FATAL")
