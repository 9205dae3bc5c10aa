"""The shared memory of parent and worker, with both ends in this process."""

import os

import numpy as np
import pytest
import torch

from voxcpm_core.worker.arena import RingArena
from voxcpm_core.worker.lending import Lender
from voxcpm_core.worker.ring import NUM_SLOTS, Ring, RingGeometry

NUM_BYTES = 5000


@pytest.fixture
def ring():
    ring = Ring.create(RingGeometry(slot_bytes=8192))
    yield ring
    ring.close()


def test_what_is_written_at_one_end_is_read_at_the_other(ring):
    other_end = Ring(ring.geometry, os.dup(ring.fd))
    for value in range(2 * NUM_SLOTS):
        slot = ring.take()
        assert slot is not None
        array = ring.floats(slot)[6:12].reshape(2, 3)
        array[:] = value
        assert ring.locate(array[1]) == (slot, 9)
        assert (other_end.floats(slot)[6:12] == value).all()
        other_end.release([slot])


def test_slots_are_exclusive_until_released(ring):
    slots = [ring.take() for _ in range(NUM_SLOTS)]
    assert sorted(slots) == list(range(NUM_SLOTS))
    assert ring.take() is None
    ring.release([2])
    assert ring.take() == 2


def test_an_array_elsewhere_has_no_place(ring):
    with pytest.raises(ValueError, match="not in the ring"):
        ring.locate(np.zeros(3, np.float32))


def test_the_memory_of_a_slot_is_its_own(ring):
    arena = RingArena(ring, pin=False)
    taken = dict(arena.take(NUM_BYTES) for _ in range(NUM_SLOTS))
    for slot, memory in taken.items():
        assert (memory.shape, memory.dtype) == ((NUM_BYTES,), torch.uint8)
        memory.fill_(slot)
    for slot, memory in taken.items():
        assert set(memory.tolist()) == {slot}
        assert ring.locate(memory.numpy().view(np.float32)) == (slot, 0)


def test_slots_that_were_not_sent_come_back_by_themselves_and_sent_ones_do_not(ring):
    arena = RingArena(ring, pin=False)
    for _ in range(3 * NUM_SLOTS):  # more steps than slots, none of which anybody wanted
        arena.collected(arena.take(NUM_BYTES)[0])
    sent = arena.take(NUM_BYTES)[0]
    arena.collected(sent)
    arena.sent(sent)
    for _ in range(3 * NUM_SLOTS):
        slot = arena.take(NUM_BYTES)[0]
        assert slot != sent
        arena.collected(slot)
    ring.release([sent])
    taken = {arena.take(NUM_BYTES)[0] for _ in range(NUM_SLOTS)}
    assert sent in taken


def test_a_slot_is_lent_until_the_last_view_is_gone(ring):
    lender = Lender(ring)
    slot = ring.take()
    array = lender.open(slot)
    view = array[3:9].reshape(2, 3)[1]
    del array
    assert ring.num_free == NUM_SLOTS - 1
    lender.forget_worker()  # the worker's death is no reason to take away what somebody reads
    assert ring.num_free == NUM_SLOTS - 1
    del view
    assert ring.num_free == NUM_SLOTS


def test_when_slots_run_short_arrays_are_copies(ring):
    lender = Lender(ring)
    kept = []
    for value in range(3 * NUM_SLOTS):
        slot = ring.take()
        assert slot is not None, "somebody who keeps what is lent stops the worker"
        ring.floats(slot)[:] = value
        kept.append(lender.open(slot)[:5])
    assert [float(array.mean()) for array in kept] == [float(value) for value in range(3 * NUM_SLOTS)]


def test_the_death_of_a_worker_frees_what_it_had_in_flight(ring):
    lender = Lender(ring)
    held = ring.take()
    array = lender.open(held)
    while ring.take() is not None:
        pass
    lender.forget_worker()
    assert ring.num_free == NUM_SLOTS - 1
    del array
    assert ring.num_free == NUM_SLOTS
