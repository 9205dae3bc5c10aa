"""Is the text understood, and does speech end where it should?"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from demo_voice.errors_of_words import WordErrors, total
from demo_voice.evaluate_speech import Spoken, duration_s, source_speech, synthesise_all
from demo_voice.flite import Pcm
from demo_voice.lengths import compare_lengths
from demo_voice.recognise import recognise_all, word_errors
from demo_voice.words import spoken_words
from voxcpm_core.api import SyncPool

Json = dict[str, Any]


def evaluate_sentences(pool: SyncPool, texts: Sequence[str], num_processes: int) -> tuple[Json, list[Pcm], list[Pcm]]:
    """Word errors and lengths without a voice given, beside the source's; and the speech of both."""
    source = source_speech(texts)
    made = synthesise_all(pool, _zero_shot(texts, source))
    heard = recognise_all([*source, *made], num_processes)
    source_heard, made_heard = heard[: len(texts)], heard[len(texts) :]
    source_errors, made_errors = errors_json(texts, source_heard), errors_json(texts, made_heard)
    results = {
        "source": source_errors,
        "made": made_errors,
        "points_above_source": 100 * (made_errors["word_error_rate"] - source_errors["word_error_rate"]),
        "lengths": asdict(compare_lengths([*map(duration_s, made)], [*map(duration_s, source)])),
        "sentences": [
            {"text": text, "heard": " ".join(words), "source_heard": " ".join(source_words)}
            for text, words, source_words in zip(texts, made_heard, source_heard, strict=True)
        ],
    }
    return results, source, made


def evaluate_shuffled(pool: SyncPool, texts: Sequence[str], num_processes: int) -> Json:
    """Word errors of shuffled sentences, against the words as shuffled and against the sentence's own order.

    A voice that says what it reads has far fewer against the first.
    """
    shuffled = [shuffled_words(text) for text in texts]
    source = source_speech(shuffled)
    heard = recognise_all(synthesise_all(pool, _zero_shot(shuffled, source)), num_processes)
    return {"as_shuffled": errors_json(shuffled, heard), "in_order": errors_json(texts, heard)}


def shuffled_words(text: str) -> str:
    """The words of a text in another order, the same for the same text, as a sentence of their own."""
    words = spoken_words(text)
    random.Random(text).shuffle(words)
    return f"{' '.join(words).capitalize()}."


def _zero_shot(texts: Sequence[str], source: Sequence[Pcm]) -> list[Spoken]:
    return [Spoken(text, seed, pcm) for seed, (text, pcm) in enumerate(zip(texts, source, strict=True))]


def errors_json(texts: Sequence[str], heard: Sequence[list[str]]) -> Json:
    """Counts over all sentences and their word error rate."""
    errors: WordErrors = total(word_errors(text, words) for text, words in zip(texts, heard, strict=True))
    return {"word_error_rate": errors.rate, **asdict(errors)}
