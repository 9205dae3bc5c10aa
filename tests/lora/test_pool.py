"""Slots for adapters: pinned while in use, the least recently used given away, over random schedules."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from voxcpm_core.lora.pool import LoraPool


@dataclass(frozen=True)
class Adapter:
    digest: str


A, B, C = (Adapter(name) for name in "abc")


def test_the_least_recently_used_goes_and_the_pinned_stay():
    pool = LoraPool(2)
    first, second = pool.acquire(A), pool.acquire(B)
    assert pool.acquire(C) is None
    pool.release(first)
    pool.release(second)
    assert pool.acquire(A) == first, "it is still there"
    pool.release(first)
    assert pool.acquire(C) == second
    assert pool.acquire(B) == first
    assert pool.num_pinned == 2
    assert pool.acquire(A) is None


def test_without_slots_there_is_none():
    assert LoraPool(0).acquire(A) is None


actions = st.lists(st.tuples(st.booleans(), st.integers(0, 7)), max_size=40)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(actions, st.integers(1, 4))
def test_pins_balance_and_two_adapters_never_share_a_slot(steps, num_slots):
    pool, users = LoraPool(num_slots), []
    for comes, which in steps:
        if comes:
            slot = pool.acquire(Adapter(str(which)))
            pinned = {digest for digest, _ in users}
            assert (slot is None) == (str(which) not in pinned and len(pinned) == num_slots)
            if slot is not None:
                users.append((str(which), slot))
        elif users:
            pool.release(users.pop(which % len(users))[1])
        pool.check_integrity([slot for _, slot in users])
        assert len({slot for _, slot in users}) == len({digest for digest, _ in users})
