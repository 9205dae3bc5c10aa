"""One training sequence: a whole request and its answer as the language models see them.

    zero-shot      text… 101 target…
    reference      103 reference… 104 text… 101 target…
    continuation   text… 101 prompt… target…
    combined       103 reference… 104 text… 101 prompt… target…
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from voxcpm_core.text.layout import AUDIO_START, prefill_layout

Ids = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float32]

# A prompt's first patches follow text alone, from which nobody can know its speaker. Learning to say them would teach
# speech without a prompt to come in any voice, so they are heard and not predicted.
UNPREDICTED_PROMPT_PATCHES = 4


class Laid(NamedTuple):
    """S rows, of which N hold audio patches."""

    token_ids: Ids  # [S], 0 where a patch stands
    frames: Ids  # [N, P], which latents make up each patch
    audio_rows: Ids  # [N], where the patches stand
    first_predicted: int  # patches from this one on are to be predicted, each from the row before it


def lay_out(text_ids: Sequence[int], target: Ids, reference: Ids, prompt: Ids) -> Laid:
    """Put one sequence together; the patches are given as frame numbers [n, P], n = 0 for what is absent.

    `text_ids` are those of the prompt's text and the target's, without a marker.
    """
    layout = prefill_layout([*text_ids, AUDIO_START], len(prompt), len(reference))
    num_prefill = len(layout.ids)
    rows = [*layout.reference, *layout.prompt, *range(num_prefill, num_prefill + len(target))]
    return Laid(
        token_ids=np.concatenate((layout.ids, np.zeros(len(target), np.int64))),
        frames=np.concatenate((reference, prompt, target)),
        audio_rows=np.array(rows, np.int64),
        first_predicted=len(reference) + min(len(prompt), UNPREDICTED_PROMPT_PATCHES),
    )


class Batch(NamedTuple):
    """B sequences of one length S; rows and patches are numbered through the batch. M patches are to be predicted."""

    token_ids: Ids  # [B, S]
    frames: Ids  # [N, P]
    audio_rows: Ids  # [N], in the flattened batch
    targets: Ids  # [M], the patches to predict
    previous: Ids  # [M], the patch before each, or N where no audio precedes it
    is_last: Ids  # [M], 1 where the target is its sequence's last patch
    weights: Weights  # [M], 0 for targets that only fill up


def collate(sequences: Sequence[Laid], num_rows: int) -> Batch:
    """Put sequences of at most `num_rows` rows into one batch; what is missing is filled up behind them."""
    token_ids = np.zeros((len(sequences), num_rows), np.int64)
    audio_rows, targets, previous, is_last = [], [], [], []
    num_patches = sum(len(sequence.frames) for sequence in sequences)
    first_patch = 0
    for index, sequence in enumerate(sequences):
        token_ids[index, : len(sequence.token_ids)] = sequence.token_ids
        audio_rows.append(sequence.audio_rows + index * num_rows)
        numbers = np.arange(sequence.first_predicted, len(sequence.frames))
        before = np.concatenate(([-2], sequence.audio_rows))[numbers]
        follows = sequence.audio_rows[numbers] - before == 1
        targets.append(first_patch + numbers)
        previous.append(np.where(follows, first_patch + numbers - 1, num_patches))
        is_last.append((numbers == len(sequence.frames) - 1).astype(np.int64))
        first_patch += len(sequence.frames)
    return Batch(
        token_ids,
        np.concatenate([sequence.frames for sequence in sequences]),
        *map(np.concatenate, (audio_rows, targets, previous, is_last)),
        weights=np.ones(sum(map(len, targets)), np.float32),
    )


class BatchShape(NamedTuple):
    """What a batch is brought to, so that few shapes occur."""

    num_sequences: int
    num_rows: int
    num_patches: int
    num_targets: int


def bring_to(shape: BatchShape, batch: Batch, rng: np.random.Generator) -> Batch:
    """Fill a batch of at most as many sequences, rows and patches up; of more targets, a random choice is left.

    What fills up stands in a row behind the last one, which does not exist.
    """
    num_missing = shape.num_patches - len(batch.frames)
    token_ids = np.zeros(shape[:2], np.int64)
    token_ids[: len(batch.token_ids)] = batch.token_ids
    previous = np.where(batch.previous == len(batch.frames), shape.num_patches, batch.previous)
    chosen = np.arange(len(batch.targets))
    if len(chosen) > shape.num_targets:
        chosen = np.sort(rng.choice(chosen, shape.num_targets, replace=False))

    def targets(values: npt.NDArray[Any], filling: int) -> Any:
        return np.pad(values[chosen], (0, shape.num_targets - len(chosen)), constant_values=filling)

    return Batch(
        token_ids,
        np.pad(batch.frames, ((0, num_missing), (0, 0))),
        np.pad(batch.audio_rows, (0, num_missing), constant_values=token_ids.size),
        targets(batch.targets, 0),
        targets(previous, shape.num_patches),
        targets(batch.is_last, 0),
        targets(batch.weights, 0),
    )
