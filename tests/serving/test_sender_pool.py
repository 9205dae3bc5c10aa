"""Ordered lanes on a few threads: order, turns, and slow lanes that hold nobody up."""

import threading
import time
from collections.abc import Callable

from voxcpm_core.serving.sender_pool import SLOW_S, SenderPool

GENEROUS_S = 5.0


def pool_threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


def wait_until(condition: Callable[[], bool]) -> bool:
    deadline_s = time.monotonic() + GENEROUS_S
    while not condition() and time.monotonic() < deadline_s:
        time.sleep(0.002)
    return condition()


def test_each_lane_is_handled_in_order_by_one_thread_at_a_time():
    pool = SenderPool(3, "order")
    inside: dict[int, int] = dict.fromkeys(range(10), 0)
    overlaps: list[int] = []
    seen: dict[int, list[int]] = {key: [] for key in inside}

    def handler(key: int) -> Callable[[int], None]:
        def handle(item: int) -> None:
            inside[key] += 1
            if inside[key] != 1:
                overlaps.append(key)
            time.sleep(0.0002)
            seen[key].append(item)
            inside[key] -= 1

        return handle

    lanes = {key: pool.lane(handler(key)) for key in inside}
    for item in range(40):
        for lane in lanes.values():
            lane.put(item)
    assert pool.close(GENEROUS_S)
    assert all(items == list(range(40)) for items in seen.values())
    assert overlaps == []
    assert pool_threads("order") == []


def test_ready_lanes_take_turns():
    pool = SenderPool(1, "turns")
    started, order = threading.Event(), []

    def handle(item: str) -> None:
        if item == "block":
            started.wait(SLOW_S / 2)
        order.append(item)

    first, second = pool.lane(handle), pool.lane(handle)
    first.put("block")
    for index in range(3):
        first.put(f"a{index}")
        second.put(f"b{index}")
    started.set()
    assert pool.close(GENEROUS_S)
    assert order[:1] == ["block"]
    assert order[1:] in (["b0", "a0", "b1", "a1", "b2", "a2"], ["a0", "b0", "a1", "b1", "a2", "b2"])


def test_stuck_lanes_do_not_hold_up_others():
    pool = SenderPool(2, "stuck")
    release = threading.Event()
    stuck = [pool.lane(lambda item: release.wait(GENEROUS_S) and None) for _ in range(6)]
    for lane in stuck:
        lane.put(0)
        lane.put(1)
    done = threading.Event()
    pool.lane(lambda item: done.set()).put(0)
    assert done.wait(GENEROUS_S)
    assert len(pool_threads("stuck")) <= 2 + 6 + 1
    release.set()
    assert wait_until(lambda: len(pool_threads("stuck")) == 3), "threads of slow lanes must end"
    assert pool.close(GENEROUS_S)


def test_a_slow_lane_keeps_its_order_on_a_thread_of_its_own():
    pool = SenderPool(1, "slow")
    slow_seen, threads = [], set()

    def slow(item: int) -> None:
        threads.add(threading.get_ident())
        time.sleep(2 * SLOW_S)
        slow_seen.append(item)

    released = threading.Event()
    lane = pool.lane(lambda item: (item < 3 or released.wait(GENEROUS_S)) and slow(item))
    for item in range(3):
        lane.put(item)
    time.sleep(1.5 * SLOW_S + 0.1)
    quick = threading.Event()
    pool.lane(lambda item: quick.set()).put(0)
    assert quick.wait(GENEROUS_S)
    assert wait_until(lambda: slow_seen == [0, 1, 2])
    assert len(threads) == 1
    lane.put(3)
    quick_2 = threading.Event()
    pool.lane(lambda item: quick_2.set()).put(0)
    assert quick_2.wait(GENEROUS_S / 2), "a lane known as slow leaves the pool's only worker free"
    released.set()
    assert pool.close(GENEROUS_S)
    assert slow_seen == [0, 1, 2, 3]
    assert pool_threads("slow") == []


def test_close_reports_what_is_still_stuck():
    pool = SenderPool(1, "closing")
    release = threading.Event()
    pool.lane(lambda item: release.wait(GENEROUS_S) and None).put(0)
    assert not pool.close(0.1)
    release.set()
    assert pool.close(GENEROUS_S)


def test_put_does_not_wait_for_the_handler():
    pool = SenderPool(1, "put")
    release = threading.Event()
    lane = pool.lane(lambda item: release.wait(GENEROUS_S) and None)
    start_s = time.monotonic()
    for _ in range(1000):
        lane.put(0)
    assert time.monotonic() - start_s < 1.0
    release.set()
    assert pool.close(GENEROUS_S)
