"""An instance that drains: who is refused, who finishes, and how a deadline ends what is left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from tests.serving.fake_triton import FakeRequest
from tests.serving.served import GENEROUS_S, Served, speech
from voxcpm_core.errors import RequestError

REFUSED = "the server takes no more requests, retry after 1000 ms"
LATE = "not finished within the 100 ms that the server had left to end, retry after 1000 ms"
STEP_S = 0.005


def message(request: FakeRequest) -> str:
    assert request.sender.final.wait(GENEROUS_S)
    assert request.sender.violations == []
    (error,) = request.sender.errors
    assert error.code == "UNAVAILABLE"
    return error.message


def endless(request_id: str) -> FakeRequest:
    return speech(request_id, patches=10_000, ignore_stop=np.array([True]), length_cap=np.array([False]))


def wait_until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + GENEROUS_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.001)


def test_who_has_a_place_finishes_and_all_others_are_refused(serve: Callable[..., Served]):
    served = serve(step_s=STEP_S, max_running=1, max_waiting=1)
    running, waiting, at_gate, late = (speech(name, patches=20) for name in ("running", "waiting", "at_gate", "late"))
    served.adapter.execute([running, waiting])
    blocked = threading.Thread(target=served.adapter.execute, args=[[at_gate]])
    blocked.start()
    wait_until(lambda: served.adapter.roster.num_open == 3)
    served.adapter.drain.begin(None)
    assert message(at_gate) == f"[DRAINING] request at_gate: {REFUSED}"
    blocked.join()
    served.adapter.execute([late])
    assert message(late) == f"[DRAINING] request late: {REFUSED}"
    for request in (running, waiting):
        assert request.sender.final.wait(GENEROUS_S)
        assert request.sender.errors == []
        assert request.sender.chunks[-1]["finish_reason"] == b"length"
    assert served.adapter.roster.num_open == 0


def test_what_is_wrong_with_a_request_is_still_told(serve: Callable[..., Served]):
    """So a liveness check with blank text sees no difference."""
    served = serve()
    served.adapter.drain.begin(None)
    (error,) = served.run(speech(target_text=np.array([b" "], np.object_))).errors
    assert "[INVALID_TEXT]" in error.message


def test_the_deadline_ends_what_is_left_wherever_it_is(serve: Callable[..., Served]):
    served = serve(step_s=STEP_S, max_running=1, max_waiting=1)
    running, waiting = endless("running"), endless("waiting")
    served.adapter.execute([running, waiting])
    wait_until(lambda: bool(running.sender.responses))
    start_s = time.monotonic()
    served.adapter.drain.begin(100)
    for request in (running, waiting):
        assert message(request) == f"[DRAINING] request {request.id}: {LATE}"
    assert 0.1 <= time.monotonic() - start_s < 1.0
    wait_until(lambda: served.engine.stats()[:2] == (0, 0))


def test_a_later_deadline_takes_an_earlier_ones_place(serve: Callable[..., Served]):
    served = serve(step_s=STEP_S)
    request = endless("running")
    served.adapter.execute([request])
    served.adapter.drain.begin(100)
    served.adapter.drain.begin(None)
    assert not request.sender.final.wait(0.3)
    served.adapter.drain.begin(0)
    assert "the 0 ms that" in message(request)


def test_closing_ends_the_deadline_s_thread(serve: Callable[..., Served]):
    served = serve()
    served.adapter.drain.begin(60_000)
    served.adapter.close()
    served.adapter.drain.begin(60_000)
    assert not [each for each in threading.enumerate() if each.name == "voxcpm-drain"]
    with pytest.raises(RequestError, match=REFUSED):
        served.adapter.drain.require_not_begun()
