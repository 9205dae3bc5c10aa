"""`retry_badcase`: the attempts are those of the official loop, and each is a request that could be sent by itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxcpm_core.serving.attempts import MAX_ATTEMPTS, attempts
from voxcpm_core.types import EngineRequest

OFFICIAL_RATIO, OFFICIAL_TIMES = 6.0, 3


def request(max_patches: int, seed: int = 0) -> EngineRequest:
    return EngineRequest("r", (5, 101), None, None, 2, max_patches, 2, False, 2.0, 1.0, 10, seed, True)


def official(stops: list[int], num_target_tokens: int, max_patches: int) -> tuple[int, int]:
    """Which attempt counts, and its length, in the official loop, where attempt k would stop by itself at stops[k]."""
    index = 0
    while True:
        num_patches = min(stops[index], max_patches)
        if num_patches < num_target_tokens * OFFICIAL_RATIO or index == OFFICIAL_TIMES - 1:
            return index, num_patches
        index += 1


@given(
    stops=st.lists(st.integers(1, 80), min_size=3, max_size=3),
    num_target_tokens=st.integers(1, 10),
    max_length=st.integers(1, 80),
)
def test_the_attempt_that_counts_and_its_length_are_the_official_ones(
    stops: list[int], num_target_tokens: int, max_length: int
):
    max_patches = min(max_length, 6 * num_target_tokens + 10)
    tries = attempts(request(max_patches), num_target_tokens)
    for index, each in enumerate(tries):
        num_patches = min(stops[index], each.max_patches)
        if num_patches < each.max_patches:
            break
    assert (index, num_patches) == official(stops, num_target_tokens, max_patches)


def test_the_first_has_the_seed_itself_and_the_last_the_limit_itself():
    first, second, third = attempts(request(70, seed=41), 10)
    assert (first.seed, second.seed, third.seed) == (41, 42, 43)
    assert (first.max_patches, second.max_patches, third.max_patches) == (60, 60, 70)


def test_what_cannot_be_a_bad_case_is_made_once():
    assert attempts(request(59), 10) == (request(59),)
    assert len(attempts(request(60), 10)) == MAX_ATTEMPTS


@pytest.mark.parametrize("seed", [2**63 - 1, 2**63 - 2, -(2**63), -1])
def test_seeds_stay_64_bit(seed: int):
    seeds = [each.seed for each in attempts(request(70, seed), 10)]
    assert seeds[0] == seed
    assert len(set(seeds)) == MAX_ATTEMPTS
    assert all(-(2**63) <= each < 2**63 for each in seeds)
