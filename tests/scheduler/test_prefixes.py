"""Laws of shared pages, over random schedules on a memory that remembers who wrote what."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from tests.scheduler.test_scheduler import PAGE_SIZE, make_request
from voxcpm_core.lora.pool import LoraPool
from voxcpm_core.scheduler import PagePool, Scheduler, SlotPool, Stream, pages_for
from voxcpm_core.scheduler.prefixes import PrefixCache
from voxcpm_core.types import Condition, EngineRequest

VOICE_POSITIONS = (3, 4, 6, 9)  # of four voices: part of a page, a page, more than pages


@dataclass(frozen=True)
class Adapter:
    digest: str


def spoken(voice: int | None, num_text: int = 3, max_patches: int = 4) -> EngineRequest:
    """A request with a voice, or without one."""
    num_voice = 0 if voice is None else VOICE_POSITIONS[voice]
    reference = None if voice is None else Condition(latents=np.full((1, 1), voice, np.float32))
    request = make_request(num_prefill=num_voice + num_text, max_patches=max_patches)
    return replace(request, reference=reference, num_voice_positions=num_voice)


def make_scheduler(num_slots: int = 4, num_pages: int = 40, max_kept_pages: int = 40, num_loras: int = 0) -> Scheduler:
    pages = PagePool(num_pages, PAGE_SIZE)
    return Scheduler(SlotPool(num_slots), pages, 1000, LoraPool(num_loras), max_kept_pages)


class Memory:
    """What a runner does to pages, and what it finds there."""

    def __init__(self, scheduler: Scheduler, num_pages: int) -> None:
        self.scheduler = scheduler
        self.cells = [[None] * PAGE_SIZE for _ in range(num_pages)]

    def step(self) -> bool:
        plan = self.scheduler.plan()
        assert_nobody_waits_for_kept_pages(self.scheduler)
        if plan is None:
            return False
        for stream in plan.prefills:
            if stream.tail_source is not None:
                own = stream.pages[stream.num_known // PAGE_SIZE]
                self.cells[own] = list(self.cells[stream.tail_source])
        for stream in plan.prefills:
            # Filled up by two: what is not yet the stream's own text or patch is nobody's.
            filled = min(stream.request.num_prefill + 2, len(stream.pages) * PAGE_SIZE)
            for position in range(stream.num_known, filled):
                self.write(stream, position)
        rows = list(zip(plan.batch.streams, plan.patch_indices, strict=True))
        for stream, index in rows:
            self.write(stream, stream.request.num_prefill + index)
        for stream, index in rows:
            for position in range(stream.request.num_prefill + index + 1):
                page, offset = stream.pages[position // PAGE_SIZE], position % PAGE_SIZE
                assert self.cells[page][offset] == self.content(stream, position)
            if index == 0:
                self.scheduler.prefilled(stream)
        self.scheduler.observe(plan, [False] * len(rows))
        return True

    def write(self, stream: Stream, position: int) -> None:
        self.cells[stream.pages[position // PAGE_SIZE]][position % PAGE_SIZE] = self.content(stream, position)

    @staticmethod
    def content(stream: Stream, position: int) -> tuple[object, int]:
        """A voice's positions depend on voice and adapter alone."""
        reference = stream.request.reference
        if reference is not None and position < stream.request.num_voice_positions:
            return (float(reference.latents[0, 0]), stream.lora_digest), position
        return stream.stream_id, position


@pytest.mark.parametrize("max_kept", [2, 5, 100])
@pytest.mark.parametrize("seed", range(8))
def test_pages_balance_and_hold_what_their_streams_wrote(seed, max_kept):
    rng = np.random.default_rng(seed)
    num_pages = int(rng.integers(8, 24))
    scheduler = make_scheduler(int(rng.integers(2, 6)), num_pages, max_kept, num_loras=2)
    memory, streams = Memory(scheduler, num_pages), []
    for action in rng.choice(["add", "step", "drop", "forget"], 400, p=[0.4, 0.5, 0.09, 0.01]):
        if action == "add" and len(scheduler.waiting) < 4:
            request = spoken(rng.choice([None, 0, 1, 2, 3]), int(rng.integers(1, 9)), int(rng.integers(1, 10)))
            name = rng.choice([None, None, "a", "b", "c"])
            streams.append(scheduler.add(len(streams), request, Adapter(name) if name else None))
        elif action == "drop" and streams:
            scheduler.drop(streams[-int(rng.integers(1, 9)) % len(streams)])
        elif action == "forget":
            scheduler.forget_prefixes()
        else:
            memory.step()
        scheduler.check_integrity()
    while memory.step():
        scheduler.check_integrity()
    assert (scheduler.pages_used, scheduler.running, scheduler.waiting) == (0, (), ())
    assert scheduler.pages_kept <= max_kept
    assert any(stream.num_known for stream in streams)
    scheduler.forget_prefixes()
    assert scheduler._pages.num_free == num_pages


def assert_nobody_waits_for_kept_pages(scheduler: Scheduler) -> None:
    """Who is first in line after a plan lacks a slot, an adapter's slot, or pages that streams use."""
    pages, loras = scheduler._pages, scheduler._loras
    if not scheduler.waiting or not scheduler._slots.num_free:
        return
    stream = scheduler.waiting[0]
    if stream.lora is not None and stream.lora_digest not in loras._slots and loras.num_pinned == loras.num_slots:
        return
    shared = scheduler._known_pages(stream)[: stream.request.num_voice_positions // PAGE_SIZE]
    num_others = pages.num_free + pages.num_idle - sum(pages._num_users[page] == 0 for page in shared)
    assert num_others < pages_for(stream.request.num_positions, PAGE_SIZE) - len(shared)


def test_full_pages_are_shared_and_the_last_is_copied():
    memory = Memory(make_scheduler(), 40)
    scheduler = memory.scheduler
    first = scheduler.add(0, spoken(voice=2, max_patches=6))  # six positions: a page and a half
    memory.step()
    second, third = (scheduler.add(index, spoken(voice=2)) for index in (1, 2))
    other = scheduler.add(3, spoken(voice=1))
    memory.step()
    assert (first.num_known, other.num_known) == (0, 0)
    for stream in (second, third):
        assert stream.num_known == 6
        assert stream.pages[0] == first.pages[0]
        assert stream.tail_source == first.pages[1]
    assert len({stream.pages[1] for stream in (first, second, third)}) == 3
    used = {page for stream in scheduler.running for page in stream.pages}
    assert scheduler.pages_used == len(used), "a shared page counts once"


def test_a_voice_of_whole_pages_needs_no_copy_and_a_short_one_nothing_but_that():
    memory = Memory(make_scheduler(), 40)
    for index, voice in enumerate((0, 1)):
        memory.scheduler.add(index, spoken(voice))
    memory.step()
    short, whole = (memory.scheduler.add(2 + index, spoken(voice)) for index, voice in enumerate((0, 1)))
    memory.step()
    assert (short.num_known, short.tail_source is None) == (3, False)
    assert (whole.num_known, whole.tail_source) == (4, None)


def test_the_budget_of_prefills_counts_what_is_run():
    scheduler = Scheduler(SlotPool(8), PagePool(40, PAGE_SIZE), 8, LoraPool(0), 40)
    memory = Memory(scheduler, 40)
    scheduler.add(0, spoken(voice=3))
    memory.step()
    streams = [scheduler.add(index, spoken(voice=3, num_text=4)) for index in (1, 2, 3)]
    plan = scheduler.plan()
    assert plan is not None
    assert plan.prefills == tuple(streams[:2])


def test_the_least_recently_used_is_given_up_and_what_streams_use_stays_theirs():
    pages = PagePool(10, PAGE_SIZE)
    cache = PrefixCache(pages, max_pages=6)
    held = {}
    for name in "abc":
        held[name] = pages.acquire(2)
        cache.keep((name, ""), held[name])
        if name != "a":
            pages.release(held[name])
    assert (pages.num_used, pages.num_idle, pages.num_free) == (2, 4, 4)
    assert cache.find(("b", "")) == held["b"]
    new = pages.acquire(2)
    cache.keep(("d", ""), new)
    assert cache.find(("a", "")) == (), "the limit took the oldest, which a stream still uses"
    assert (pages.num_used, pages.num_idle, pages.num_free) == (4, 4, 2)
    cache.make_room(7)
    assert pages.num_free == 2, "that can never be, so nothing is given up for it"
    cache.make_room(4)
    assert cache.find(("c", "")) == ()
    assert cache.find(("b", "")) == held["b"]
    pages.check_integrity([*held["a"], *new])
    cache.check_integrity()


def test_a_page_that_was_given_up_is_copied_before_it_is_written():
    """Two newcomers of one step: the second needs pages so badly that the first one's source becomes its own."""
    memory = Memory(make_scheduler(num_pages=5), 5)
    scheduler = memory.scheduler
    for voice in (0, 2):
        scheduler.add(voice, spoken(voice, num_text=1, max_patches=1))
        while memory.step():
            pass
    assert scheduler.pages_kept == 3
    first = scheduler.add(3, spoken(voice=0, num_text=1, max_patches=4))
    second = scheduler.add(4, spoken(voice=2, num_text=1, max_patches=1))
    assert memory.step()
    assert (first.num_known, second.num_known) == (3, 6)
    assert second.pages[second.num_known // PAGE_SIZE] == first.tail_source


@pytest.mark.parametrize("max_kept_pages", [0, 1])
def test_what_may_not_be_kept_is_not(max_kept_pages):
    memory = Memory(make_scheduler(max_kept_pages=max_kept_pages), 40)
    for index in range(2):
        stream = memory.scheduler.add(index, spoken(voice=3))
        while memory.step():
            pass
        assert (stream.num_known, memory.scheduler.pages_kept) == (0, 0)
