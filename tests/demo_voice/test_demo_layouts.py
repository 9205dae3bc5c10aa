"""Sequences have the rows that the engine's prefill has, and predict what they should."""

from __future__ import annotations

import numpy as np

from demo_voice.layouts import UNPREDICTED_PROMPT_PATCHES, BatchShape, bring_to, collate, lay_out

NONE = np.zeros((0, 4), np.int64)


def patches(count: int, first: int = 100) -> np.ndarray:
    return first + np.arange(4 * count).reshape(count, 4)


def test_zero_shot_predicts_every_patch_from_the_row_before():
    batch = collate([lay_out([7, 8], patches(3), NONE, NONE)], 8)
    assert batch.token_ids.tolist() == [[7, 8, 101, 0, 0, 0, 0, 0]]
    assert batch.audio_rows.tolist() == [3, 4, 5]
    assert batch.targets.tolist() == [0, 1, 2]
    assert batch.previous.tolist() == [3, 0, 1]  # nothing precedes the first
    assert batch.is_last.tolist() == [0, 0, 1]


def test_a_reference_is_heard_and_not_predicted():
    batch = collate([lay_out([7, 8], patches(2), patches(3, 500), NONE)], 12)
    assert batch.token_ids[0].tolist() == [103, 0, 0, 0, 104, 7, 8, 101, 0, 0, 0, 0]
    assert batch.audio_rows.tolist() == [1, 2, 3, 8, 9]
    assert batch.frames[:, 0].tolist() == [500, 504, 508, 100, 104]
    assert batch.targets.tolist() == [3, 4]
    assert batch.previous.tolist() == [5, 3]


def test_a_prompt_is_predicted_once_its_speaker_is_known():
    prompt = patches(UNPREDICTED_PROMPT_PATCHES + 1, 500)
    batch = collate([lay_out([7], patches(2), NONE, prompt)], 16)
    assert batch.token_ids[0, :2].tolist() == [7, 101]
    first = UNPREDICTED_PROMPT_PATCHES
    assert batch.targets.tolist() == [first, first + 1, first + 2]
    assert batch.previous.tolist() == [first - 1, first, first + 1]
    assert batch.is_last.tolist() == [0, 0, 1]


def test_the_first_target_after_a_short_prompt_follows_the_prompt():
    batch = collate([lay_out([7], patches(2), patches(1, 300), patches(1, 500))], 16)
    assert batch.token_ids[0, :6].tolist() == [103, 0, 104, 7, 101, 0]
    assert batch.audio_rows.tolist() == [1, 5, 6, 7]
    assert batch.targets.tolist() == [2, 3]
    assert batch.previous.tolist() == [1, 2]


def test_sequences_of_a_batch_are_numbered_through():
    one, two = lay_out([7, 8], patches(2), NONE, NONE), lay_out([9], patches(3, 300), patches(1, 500), NONE)
    batch = collate([one, two], 10)
    assert batch.token_ids.shape == (2, 10)
    assert batch.audio_rows.tolist() == [3, 4, 11, 15, 16, 17]
    assert batch.targets.tolist() == [0, 1, 3, 4, 5]
    assert batch.previous.tolist() == [6, 0, 6, 3, 4]
    assert batch.is_last.tolist() == [0, 1, 0, 0, 1]
    assert batch.frames[batch.targets[-1]].tolist() == [308, 309, 310, 311]


def test_what_fills_a_batch_up_stands_nowhere_and_weighs_nothing():
    one, two = lay_out([7, 8], patches(2), NONE, NONE), lay_out([9], patches(3, 300), patches(1, 500), NONE)
    plain = collate([one, two], 10)
    batch = bring_to(BatchShape(3, 10, 8, 7), plain, np.random.default_rng(0))
    assert batch.token_ids.tolist() == [*plain.token_ids.tolist(), [0] * 10]
    assert batch.audio_rows.tolist() == [*plain.audio_rows, 30, 30]
    assert batch.frames[:6].tolist() == plain.frames.tolist()
    assert batch.targets.tolist() == [*plain.targets, 0, 0]
    assert batch.previous.tolist() == [8, 0, 8, 3, 4, 8, 8]  # 8: none
    assert batch.is_last.tolist() == [*plain.is_last, 0, 0]
    assert batch.weights.tolist() == [1] * 5 + [0] * 2


def test_of_too_many_targets_some_are_left():
    plain = collate([lay_out([7, 8], patches(9), NONE, NONE)], 12)
    shape = BatchShape(1, 12, 9, 4)
    chosen = {tuple(bring_to(shape, plain, np.random.default_rng(seed)).targets) for seed in range(20)}
    assert len(chosen) > 10
    assert all(len(set(targets)) == 4 and targets == tuple(sorted(targets)) for targets in chosen)
