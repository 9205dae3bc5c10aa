"""Admission: who passes, who blocks, and how a blocked request leaves."""

import threading
import time
from collections.abc import Callable

import pytest

from voxcpm_core.errors import ErrorCode, RequestError
from voxcpm_core.serving.gate import CANCEL_POLL_S, Gate, Place

GENEROUS_S = 3.0


GONE = RequestError(ErrorCode.CANCELLED, "gone")


def stays() -> None:
    """The `departure` of a caller who stays."""


def enter(gate: Gate, num_positions: int, departure: Callable[[], RequestError | None] = stays) -> Place:
    place = gate.line_up(num_positions)
    place.enter(departure)
    return place


class Entering:
    """A thread at the gate."""

    def __init__(
        self, gate: Gate, num_positions: int = 1, departure: Callable[[], RequestError | None] = stays
    ) -> None:
        self.place: Place | None = None
        self.error: RequestError | None = None
        self._thread = threading.Thread(target=self._run, args=(gate, num_positions, departure), daemon=True)
        self._thread.start()

    def _run(self, gate: Gate, num_positions: int, departure: Callable[[], RequestError | None]) -> None:
        try:
            self.place = enter(gate, num_positions, departure)
        except RequestError as error:
            self.error = error

    def is_through(self, within_s: float = GENEROUS_S) -> bool:
        self._thread.join(within_s)
        return not self._thread.is_alive()


def gate_with(max_running: int = 2, max_waiting: int = 1, num_pages: int = 100) -> Gate:
    return Gate(max_running, max_waiting, num_pages, page_size=16)


def test_slots_and_waiting_places_are_let_through_and_no_more():
    gate = gate_with()
    places = [enter(gate, 1) for _ in range(2)]
    for place in places:
        place.admit()
    waiting = enter(gate, 1)
    late = Entering(gate)
    assert not late.is_through(0.05)
    places[0].leave()
    assert not late.is_through(0.05), "the free slot belongs to the one that waits inside"
    waiting.admit()
    assert late.is_through()
    assert gate.num_inside == 3


def test_a_burst_that_can_run_at_once_does_not_wait_for_admission():
    gate = gate_with(max_running=8, max_waiting=1)
    for _ in range(8):
        enter(gate, 1)
    assert not Entering(gate).is_through(0.05)


def test_admission_makes_room():
    gate = gate_with(max_running=1, max_waiting=1)
    enter(gate, 1).admit()
    waiting = enter(gate, 1)
    late = Entering(gate)
    assert not late.is_through(0.05)
    waiting.admit()
    assert late.is_through()


def test_pages_count_as_slots_do():
    gate = gate_with(max_running=8, max_waiting=1, num_pages=4)
    enter(gate, 33).admit()  # 3 pages
    enter(gate, 16)  # the fourth
    assert not Entering(gate, num_positions=1).is_through(0.05)


def test_a_request_larger_than_what_is_free_may_wait_inside():
    gate = gate_with(max_running=8, max_waiting=1, num_pages=4)
    enter(gate, 64).admit()
    assert Entering(gate, num_positions=64).is_through()


def test_a_place_that_shrinks_makes_room_and_never_grows():
    gate = gate_with(max_running=8, max_waiting=1, num_pages=4)
    place = enter(gate, 64)
    late = Entering(gate, num_positions=48)
    assert not late.is_through(0.05)
    place.shrink(16)
    assert late.is_through()
    place.shrink(64)
    assert place.num_pages == 1


def test_a_further_attempt_waits_inside_as_others_do():
    gate = gate_with(max_running=1, max_waiting=1)
    place = enter(gate, 1)
    place.admit()
    place.wait_again()
    late = Entering(gate)
    assert not late.is_through(0.05)
    place.admit()
    assert late.is_through()


def test_leaving_twice_is_leaving_once():
    gate = gate_with(max_running=1, max_waiting=1)
    place = enter(gate, 1)
    place.leave()
    place.leave()
    place.admit()
    assert gate.num_inside == 0
    assert Entering(gate).is_through()
    assert gate.num_inside == 1


def test_a_blocked_request_notices_its_cancel():
    gate = gate_with(max_running=1, max_waiting=1)
    enter(gate, 1)
    gone = threading.Event()
    blocked = Entering(gate, departure=lambda: GONE if gone.is_set() else None)
    assert not blocked.is_through(2 * CANCEL_POLL_S)
    gone.set()
    assert blocked.is_through()
    assert blocked.error.code is ErrorCode.CANCELLED
    assert gate.num_inside == 1


def test_a_slow_cancel_question_does_not_hold_up_the_engine():
    gate = gate_with(max_running=1, max_waiting=1)
    place = enter(gate, 1)
    asked, answer = threading.Event(), threading.Event()

    def departure() -> RequestError | None:
        asked.set()
        return None if answer.wait(GENEROUS_S) else GONE

    blocked = Entering(gate, departure=departure)
    assert asked.wait(GENEROUS_S)
    start_s = time.monotonic()
    place.leave()
    assert time.monotonic() - start_s < GENEROUS_S / 2
    answer.set()
    assert blocked.is_through()
    assert blocked.error is None


def test_the_line_is_that_of_lining_up_and_who_leaves_it_holds_up_nobody():
    gate = gate_with()
    places = [gate.line_up(1) for _ in range(3)]
    second = threading.Thread(target=places[1].enter, args=[stays], daemon=True)
    second.start()
    second.join(0.05)
    assert second.is_alive(), "the first is still to come"
    places[0].leave()
    second.join(GENEROUS_S)
    assert not second.is_alive()
    places[2].enter(stays)
    assert gate.num_inside == 2


def test_close_answers_everyone_at_once():
    gate = gate_with(max_running=1, max_waiting=1)
    enter(gate, 1)
    blocked = [Entering(gate) for _ in range(3)]
    assert not blocked[0].is_through(0.05)
    gate.close(RequestError(ErrorCode.NOT_READY, "closing"))
    assert all(each.is_through() for each in blocked)
    assert {each.error.code for each in blocked} == {ErrorCode.NOT_READY}
    with pytest.raises(RequestError, match="closing"):
        enter(gate, 1)
