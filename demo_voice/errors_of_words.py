"""Word errors between what was to be said and what was recognised."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class WordErrors:
    """Counts of the alignment with the fewest errors."""

    num_words: int
    num_substitutions: int = 0
    num_deletions: int = 0
    num_insertions: int = 0

    @property
    def num_errors(self) -> int:
        return self.num_substitutions + self.num_deletions + self.num_insertions

    @property
    def rate(self) -> float:
        """Errors per word; above 1 when more was heard than said."""
        return self.num_errors / max(1, self.num_words)


def count_errors(said: Sequence[str], heard: Sequence[str]) -> WordErrors:
    """Errors that turn the words said into the words heard."""
    above = [WordErrors(0, num_insertions=num_heard) for num_heard in range(len(heard) + 1)]
    for num_said, word in enumerate(said, start=1):
        row = [WordErrors(num_said, num_deletions=num_said)]
        for column, other in enumerate(heard, start=1):
            kept = above[column - 1]
            row.append(min(
                _with(kept, num_said, substituted=int(word != other)),
                _with(above[column], num_said, deleted=1),
                _with(row[-1], num_said, inserted=1),
                key=lambda errors: errors.num_errors,
            ))
        above = row
    return above[-1]


def total(counts: Iterable[WordErrors]) -> WordErrors:
    """Sums over sentences: the rate of the sum weighs each sentence by its words."""
    listed = list(counts)
    return WordErrors(
        sum(errors.num_words for errors in listed),
        sum(errors.num_substitutions for errors in listed),
        sum(errors.num_deletions for errors in listed),
        sum(errors.num_insertions for errors in listed),
    )


def _with(errors: WordErrors, num_words: int, substituted: int = 0, deleted: int = 0, inserted: int = 0) -> WordErrors:
    return WordErrors(
        num_words,
        errors.num_substitutions + substituted,
        errors.num_deletions + deleted,
        errors.num_insertions + inserted,
    )
