"""First-in, first-out admission with whole-request reservation: nothing is preempted, nothing starves."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from voxcpm_core.lora.pool import Digested, LoraPool
from voxcpm_core.scheduler.pools import PagePool, SlotPool, pages_for
from voxcpm_core.scheduler.prefixes import PrefixCache
from voxcpm_core.scheduler.stream import Batch, StepPlan, Stream
from voxcpm_core.types import EngineRequest, FinishReason


class Scheduler:
    """Decides the steps. The caller alternates `plan` and `observe`; one `plan` may run ahead, and `admit` between."""

    def __init__(
        self, slots: SlotPool, pages: PagePool, max_prefill_tokens: int, loras: LoraPool | None = None,
        max_kept_pages: int = 0,
    ) -> None:
        """`loras`: slots for adapters, where there are any; `max_kept_pages`: of references that come again."""
        self._loras = loras or LoraPool(0)
        self._slots = slots
        self._pages = pages
        self._prefixes = PrefixCache(pages, max_kept_pages)
        self._max_prefill_tokens = max_prefill_tokens
        self._waiting: OrderedDict[int, Stream] = OrderedDict()
        self._running: dict[int, Stream] = {}  # by slot
        self._batch: Batch | None = None  # of those who run; None: somebody joined or left since it was made

    @property
    def waiting(self) -> tuple[Stream, ...]:
        return tuple(self._waiting.values())

    @property
    def running(self) -> tuple[Stream, ...]:
        return tuple(self._running.values())

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def pages_total(self) -> int:
        return self._pages.num_pages

    @property
    def pages_used(self) -> int:
        return self._pages.num_used

    @property
    def pages_kept(self) -> int:
        """That no stream uses; they are given up when one needs them."""
        return self._pages.num_idle

    def add(self, stream_id: int, request: EngineRequest, lora: Digested | None = None) -> Stream:
        """Queue a request with the adapter that it names. It must fit the pool; validation has made sure of that."""
        assert pages_for(request.num_positions, self._pages.page_size) <= self._pages.num_pages
        stream = self._waiting[stream_id] = Stream(stream_id, request, lora=lora)
        return stream

    def drop(self, stream: Stream) -> None:
        """Take a stream out at once (cancelled or failed). Steps in flight may still hold rows of it.

        Its slot and pages can be given to a newcomer right away: the device works through the launched steps in order.
        What is launched beside a step may not touch what that step uses.
        """
        if stream.dropped:
            return
        stream.dropped = True
        if self._waiting.pop(stream.stream_id, None) is None and self.is_running(stream):
            self._release(stream)

    def plan(self) -> StepPlan | None:
        """Retire streams whose last patch is launched, admit newcomers, and lay out the next step.

        Rows are in the order of admission, so that sums do not depend on which slots happened to be free.
        """
        self._retire()
        self.admit(lambda stream: True)
        if not self._running:
            return None
        newcomers: tuple[Stream, ...] = ()
        if self._batch is None:
            self._batch = Batch(self._running.values())
            newcomers = tuple(stream for stream in self._batch.streams if not stream.num_launched)
        prefills = tuple(stream for stream in newcomers if not stream.is_prefilled)
        for stream in prefills:
            stream.is_prefilled = True
        patch_indices = [stream.num_launched for stream in self._batch.streams]
        for stream in self._batch.streams:
            stream.num_launched += 1
        return StepPlan(newcomers, prefills, self._batch, patch_indices)

    def admit(self, accepts: Callable[[Stream], bool]) -> tuple[Stream, ...]:
        """Take in those who wait longest, up to the first that is not accepted. Those whose prefix the caller does not
        launch, and mark so, have it in the next plan."""
        admitted: list[Stream] = []
        if not self._waiting:
            return ()
        num_tokens = sum(stream.num_unknown for stream in self._running.values() if not stream.is_prefilled)
        while self._waiting and self._slots.num_free:
            stream = next(iter(self._waiting.values()))
            if not accepts(stream):
                break
            known = self._known_pages(stream)
            num_wanted = stream.request.num_prefill - (stream.request.num_voice_positions if known else 0)
            if num_tokens and num_tokens + num_wanted > self._max_prefill_tokens:
                break
            if not self._reserve(stream, known):
                break
            del self._waiting[stream.stream_id]
            stream.slot = self._slots.acquire()
            self._running[stream.slot] = stream
            self._batch = None
            admitted.append(stream)
            num_tokens += num_wanted
        return tuple(admitted)

    def is_running(self, stream: Stream) -> bool:
        """Whether it has a slot and pages."""
        return self._running.get(stream.slot) is stream

    def prefilled(self, stream: Stream) -> None:
        """Its prefix has been launched: what of it others may begin with, too, is kept for them."""
        num_positions = stream.request.num_voice_positions
        if self._prefixes.max_pages and num_positions:
            assert stream.prefix_key is not None
            pages = stream.pages[: pages_for(num_positions, self._pages.page_size)]
            self._prefixes.keep(stream.prefix_key, pages)

    def knows_reference(self, request: EngineRequest, lora: Digested | None) -> bool:
        """Whether there are pages that such a request would begin with."""
        return bool(self._known_pages(Stream(-1, request, lora=lora)))

    def forget_prefixes(self) -> None:
        """Let no newcomer have what earlier streams filled."""
        self._prefixes.clear()

    def observe(self, step: StepPlan, stops: Sequence[bool]) -> list[FinishReason | None]:
        """Take in a collected step: `stops[i]` says that row i's next patch is to be its last.

        Returns for each row the reason why it ended with this patch, or None.
        """
        reasons = [
            stream.finish_reason if index == stream.last_index else None
            for stream, index in zip(step.batch.streams, step.patch_indices, strict=True)
        ]
        for stream, index, stops_next in zip(step.batch.streams, step.patch_indices, stops, strict=True):
            if stops_next:
                stream.observe_stop(index + 1)
        self._retire()
        return reasons

    def check_integrity(self) -> None:
        """Every slot is free or a running stream's, every page free, kept, or of as many streams as it counts."""
        self._pages.check_integrity([page for stream in self._running.values() for page in stream.pages])
        self._prefixes.check_integrity()
        assert len(self._running) + self._slots.num_free == self._slots.num_slots, "slots do not balance"
        self._loras.check_integrity([stream.lora_slot for stream in self._running.values()])

    def _known_pages(self, stream: Stream) -> tuple[int, ...]:
        """Those that hold its reference already."""
        if not (self._prefixes.max_pages and stream.request.num_voice_positions):
            return ()
        assert stream.prefix_key is not None
        return self._prefixes.find(stream.prefix_key)

    def _reserve(self, stream: Stream, known: tuple[int, ...]) -> bool:
        """Take all that a stream will need, or nothing when there is not enough: nobody overtakes it then.

        Full pages are shared. One that is filled in part will be written to, so the stream gets a copy of its own; the
        copies of a step are made before anything else of it, in the order of admission, so it does not matter if the
        source is given up here.
        """
        request, page_size = stream.request, self._pages.page_size
        num_full = request.num_voice_positions // page_size if known else 0
        shared = known[:num_full]
        self._pages.share(shared)
        num_pages = pages_for(request.num_positions, page_size) - len(shared)
        self._prefixes.make_room(num_pages)
        own = self._pages.acquire(num_pages)
        if own is None:
            self._pages.release(shared)
            return False
        if stream.lora is not None:
            lora_slot = self._loras.acquire(stream.lora)
            if lora_slot is None:
                self._pages.release((*shared, *own))
                return False
            stream.lora_slot = lora_slot
        stream.pages = (*shared, *own)
        stream.num_known = request.num_voice_positions if known else 0
        stream.tail_source = known[num_full] if len(known) > num_full else None
        return True

    def _retire(self) -> None:
        for stream in [each for each in self._running.values() if each.num_launched > each.last_index]:
            self._release(stream)

    def _release(self, stream: Stream) -> None:
        del self._running[stream.slot]
        self._batch = None
        self._slots.release(stream.slot)
        self._pages.release(stream.pages)
        if stream.lora is not None:
            self._loras.release(stream.lora_slot)
