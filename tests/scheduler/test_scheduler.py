"""Laws of the scheduler, over random schedules, without a device."""

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxcpm_core.scheduler import PagePool, Scheduler, SlotPool
from voxcpm_core.types import EngineRequest, FinishReason

PAGE_SIZE = 4


def make_request(num_prefill=5, max_patches=6, min_length=2, ignore_stop=False) -> EngineRequest:
    return EngineRequest(
        request_id="r", token_ids=(1,) * num_prefill, prompt=None, reference=None, num_prefill=num_prefill,
        max_patches=max_patches, min_length=min_length, ignore_stop=ignore_stop, cfg_value=2.0, temperature=1.0,
        inference_timesteps=10, seed=0, wants_audio=True,
    )


def make_scheduler(num_slots=4, num_pages=40, max_prefill_tokens=1000) -> Scheduler:
    return Scheduler(SlotPool(num_slots), PagePool(num_pages, PAGE_SIZE), max_prefill_tokens)


@dataclass
class Run:
    """Drives a scheduler as the engine does and records what every stream got."""

    scheduler: Scheduler
    depth: int  # steps that stay in flight: 0 lock-step, 1 run-ahead
    stop_at: dict[int, int] = field(default_factory=dict)  # stream id -> patch index that the stop head ends
    patches: dict[int, list[int]] = field(default_factory=dict)
    reasons: dict[int, FinishReason] = field(default_factory=dict)
    admitted: list[int] = field(default_factory=list)
    in_flight: list = field(default_factory=list)
    num_rows: int = 0

    def step(self) -> bool:
        plan = self.scheduler.plan()
        self.scheduler.check_integrity()
        if plan is not None:
            self.admitted += [stream.stream_id for stream in plan.prefills]
            self.num_rows += len(plan.patch_indices)
            assert plan.batch.streams == self.scheduler.running
            assert len(set(plan.batch.slots)) == len(plan.patch_indices)
            assert list(plan.newcomers) == [
                stream for stream, index in zip(plan.batch.streams, plan.patch_indices, strict=True) if index == 0
            ]
            self.in_flight.append(plan)
        while len(self.in_flight) > (self.depth if plan else 0):
            self._collect(self.in_flight.pop(0))
        return plan is not None or bool(self.in_flight)

    def _collect(self, plan):
        rows = list(zip(plan.batch.streams, plan.patch_indices, strict=True))
        stops = [self.stop_at.get(stream.stream_id, -1) == index + 1 for stream, index in rows]
        for (stream, index), reason in zip(rows, self.scheduler.observe(plan, stops), strict=True):
            if stream.dropped:
                continue
            self.patches.setdefault(stream.stream_id, []).append(index)
            if reason is not None:
                assert stream.stream_id not in self.reasons
                self.reasons[stream.stream_id] = reason


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize(
    ("request_", "stop_at", "num_patches", "reason"),
    [
        (make_request(max_patches=6), None, 6, FinishReason.LENGTH),
        (make_request(max_patches=6), 4, 5, FinishReason.STOP),
        (make_request(max_patches=6), 3, 4, FinishReason.STOP),  # min_length 2: at least four patches
        (make_request(max_patches=6), 2, 6, FinishReason.LENGTH),  # too early, and it does not ask again
        (make_request(max_patches=6), 5, 6, FinishReason.STOP),
        (make_request(max_patches=6), 6, 6, FinishReason.LENGTH),
        (make_request(max_patches=6, min_length=0), 1, 2, FinishReason.STOP),
        (make_request(max_patches=6, ignore_stop=True), 4, 6, FinishReason.LENGTH),
        (make_request(max_patches=1), 1, 1, FinishReason.LENGTH),
    ],
)
def test_lengths_and_reasons(depth, request_, stop_at, num_patches, reason):
    run = Run(make_scheduler(), depth, stop_at={0: stop_at})
    run.scheduler.add(0, request_)
    while run.step():
        pass
    assert run.patches[0] == list(range(num_patches))
    assert run.reasons[0] == reason
    assert run.num_rows == num_patches, "no patch is made beyond the last, also when running ahead"


def test_a_batch_lasts_until_one_joins_or_leaves():
    run = Run(make_scheduler(), depth=1)
    for stream_id, max_patches in enumerate((4, 9)):
        run.scheduler.add(stream_id, make_request(max_patches=max_patches, ignore_stop=True))
    late = None
    batches = []
    for step in range(8):
        if step == 2:
            late = run.scheduler.add(2, make_request(max_patches=9, ignore_stop=True))
        if step == 6:
            run.scheduler.drop(late)
        run.step()
        batches.append(run.in_flight[-1].batch)
    members = [[0, 1], [0, 1], [0, 1, 2], [0, 1, 2], [1, 2], [1, 2], [1], [1]]
    assert [batch.stream_ids for batch in batches] == members
    assert all((one is other) == (one.stream_ids == other.stream_ids) for one, other in pairwise(batches))


def test_a_step_without_newcomers_that_failed_is_that_of_the_others():
    scheduler = make_scheduler()
    scheduler.add(0, make_request())
    scheduler.plan()
    failing, well = (scheduler.add(stream_id, make_request()) for stream_id in (1, 2))
    plan = scheduler.plan().without({failing})
    assert (plan.batch.stream_ids, plan.patch_indices, plan.newcomers) == ([0, 2], [1, 0], (well,))
    assert plan.max_context == well.request.num_prefill + 2


def test_admission_is_first_in_first_out_and_reserves_whole_requests():
    run = Run(make_scheduler(num_slots=8, num_pages=6), depth=0)
    run.scheduler.add(0, make_request(num_prefill=4, max_patches=8))  # 3 pages
    run.scheduler.add(1, make_request(num_prefill=8, max_patches=8))  # 4 pages: waits for the first
    run.scheduler.add(2, make_request(num_prefill=2, max_patches=2))  # 1 page: would fit, must not overtake
    run.step()
    assert run.admitted == [0]
    assert run.scheduler.pages_used == 3
    while run.step():
        pass
    assert run.admitted == [0, 1, 2]


def test_rows_are_in_the_order_of_admission_and_what_was_free_for_longest_goes_first():
    scheduler = make_scheduler(num_slots=3)
    run = Run(scheduler, depth=0)
    for stream_id, max_patches in enumerate((1, 9, 9)):
        scheduler.add(stream_id, make_request(max_patches=max_patches, ignore_stop=True))
    run.step()
    before = scheduler.running
    late = scheduler.add(3, make_request(max_patches=9, ignore_stop=True))
    plan = scheduler.plan()
    assert plan.batch.stream_ids == [1, 2, 3]
    assert plan.batch.slots == [1, 2, 0]
    assert not set(late.pages) & {page for stream in before for page in stream.pages}
    assert min(late.pages) > max(page for stream in before for page in stream.pages)


def test_prefill_budget_spreads_newcomers_over_steps():
    run = Run(make_scheduler(max_prefill_tokens=10), depth=0)
    for stream_id in range(3):
        run.scheduler.add(stream_id, make_request(num_prefill=6))
    run.scheduler.add(3, make_request(num_prefill=50))
    seen = []
    while run.step():
        seen.append(len(run.admitted))
    assert seen[:4] == [1, 2, 3, 4], "one newcomer a step; one that is larger than the budget still gets in"


requests = st.builds(
    make_request, num_prefill=st.integers(1, 20), max_patches=st.integers(1, 12), min_length=st.integers(0, 5),
    ignore_stop=st.booleans(),
)
actions = st.lists(
    st.one_of(
        st.tuples(st.just("add"), requests, st.integers(0, 14)),
        st.tuples(st.just("drop"), st.integers(0, 30)),
        st.tuples(st.just("step")),
    ),
    max_size=80,
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(actions, st.sampled_from([0, 1]), st.integers(1, 5), st.integers(8, 30))
def test_slots_and_pages_balance_over_random_schedules(steps, depth, num_slots, num_pages):
    run = Run(make_scheduler(num_slots, num_pages), depth)
    streams = []
    for action, *arguments in steps:
        if action == "add":
            request, stop_at = arguments
            run.stop_at[len(streams)] = stop_at
            streams.append(run.scheduler.add(len(streams), request))
        elif action == "drop" and streams:
            run.scheduler.drop(streams[arguments[0] % len(streams)])
        else:
            run.step()
        run.scheduler.check_integrity()
    while run.step():
        pass
    run.scheduler.check_integrity()
    assert run.scheduler.pages_used == 0
    assert not run.scheduler.running
    assert not run.scheduler.waiting
    for stream_id, stream in enumerate(streams):
        if stream.dropped:
            continue
        request, stop_at = stream.request, run.stop_at[stream_id]
        by_stop = stop_at > request.min_length and not request.ignore_stop and stop_at < request.max_patches
        num_patches = stop_at + 1 if by_stop else request.max_patches
        assert run.patches[stream_id] == list(range(num_patches))
        assert stream_id in run.reasons
    kept = [stream_id for stream_id in run.admitted if not streams[stream_id].dropped]
    assert kept == sorted(kept), "first in, first out"
