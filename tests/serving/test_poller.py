"""The thread that notices callers who have gone."""

import threading
import time
from itertools import pairwise

from voxcpm_core.serving.poller import RUNNING_POLL_S, CancelPoller

GENEROUS_S = 3.0


class Watched:
    def __init__(self, is_waiting: bool = False) -> None:
        self.is_waiting = is_waiting
        self.ended = False
        self.gone = False
        self.asked_s: list[float] = []
        self.told = threading.Event()

    def cancel_if_gone(self) -> bool:
        self.asked_s.append(time.monotonic())
        if self.gone:
            self.told.set()
        return self.gone


def test_running_streams_are_asked_more_often_than_waiting_ones():
    poller = CancelPoller()
    running, waiting = Watched(), Watched(is_waiting=True)
    poller.watch(running)
    poller.watch(waiting)
    time.sleep(1.0)
    poller.close()
    assert 5 <= len(running.asked_s) <= 21
    assert 1 <= len(waiting.asked_s) <= 6
    assert len(running.asked_s) >= 3 * len(waiting.asked_s) - 3


def test_slow_answers_do_not_make_the_polls_rarer():
    poller = CancelPoller()
    stream = Watched()
    stream.cancel_if_gone = lambda: Watched.cancel_if_gone(stream) or time.sleep(0.6 * RUNNING_POLL_S)
    poller.watch(stream)
    end_s = time.monotonic() + GENEROUS_S
    while len(stream.asked_s) < 16 and time.monotonic() < end_s:
        time.sleep(RUNNING_POLL_S)
    poller.close()
    gaps_s = sorted(later - earlier for earlier, later in pairwise(stream.asked_s))
    assert len(gaps_s) >= 8
    # A busy machine makes some of them longer, but none shorter: each would be 1.6 if the answers came on top.
    assert gaps_s[len(gaps_s) // 4] < 1.5 * RUNNING_POLL_S


def test_a_caller_who_left_is_told_once():
    poller = CancelPoller()
    stream = Watched()
    poller.watch(stream)
    stream.gone = True
    assert stream.told.wait(GENEROUS_S)
    num_asked = len(stream.asked_s)
    time.sleep(0.2)
    poller.close()
    assert len(stream.asked_s) == num_asked


def test_an_ended_stream_is_asked_no_more():
    poller = CancelPoller()
    stream, other = Watched(), Watched()
    poller.watch(stream)
    poller.watch(other)
    stream.ended = True
    time.sleep(0.2)
    num_asked = len(stream.asked_s)
    time.sleep(0.2)
    poller.close()
    assert len(stream.asked_s) == num_asked
    assert len(other.asked_s) > num_asked


def test_close_ends_the_thread():
    poller = CancelPoller()
    poller.close()
    assert not any(thread.name == "voxcpm-cancel" and thread.is_alive() for thread in threading.enumerate())
