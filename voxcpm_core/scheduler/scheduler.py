"""First-in, first-out admission with whole-request reservation: nothing is preempted, nothing starves."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from voxcpm_core.lora.pool import Digested, LoraPool
from voxcpm_core.scheduler.pools import PagePool, SlotPool, pages_for
from voxcpm_core.scheduler.stream import Row, StepPlan, Stream
from voxcpm_core.types import EngineRequest, FinishReason


class Scheduler:
    """Decides the steps. The caller alternates `plan` and `observe`; one `plan` may run ahead."""

    def __init__(
        self, slots: SlotPool, pages: PagePool, max_prefill_tokens: int, loras: LoraPool | None = None
    ) -> None:
        """`loras`: slots for adapters, where there are any."""
        self._loras = loras or LoraPool(0)
        self._slots = slots
        self._pages = pages
        self._max_prefill_tokens = max_prefill_tokens
        self._waiting: OrderedDict[int, Stream] = OrderedDict()
        self._running: dict[int, Stream] = {}  # by slot

    @property
    def waiting(self) -> tuple[Stream, ...]:
        return tuple(self._waiting.values())

    @property
    def running(self) -> tuple[Stream, ...]:
        return tuple(self._running.values())

    @property
    def pages_total(self) -> int:
        return self._pages.num_pages

    @property
    def pages_used(self) -> int:
        return self._pages.num_pages - self._pages.num_free

    def add(self, stream_id: int, request: EngineRequest, lora: Digested | None = None) -> Stream:
        """Queue a request with the adapter that it names. It must fit the pool; validation has made sure of that."""
        assert pages_for(request.num_positions, self._pages.page_size) <= self._pages.num_pages
        stream = self._waiting[stream_id] = Stream(stream_id, request, lora=lora)
        return stream

    def drop(self, stream: Stream) -> None:
        """Take a stream out at once (cancelled or failed). Steps in flight may still hold rows of it.

        Its slot and pages can be given to a newcomer right away: the device works through the
        launched steps in order.
        """
        if stream.dropped:
            return
        stream.dropped = True
        if self._waiting.pop(stream.stream_id, None) is None and self._running.get(stream.slot) is stream:
            self._release(stream)

    def plan(self) -> StepPlan | None:
        """Retire streams whose last patch is launched, admit newcomers, and lay out the next step."""
        self._retire()
        prefills = self._admit()
        rows = []
        for slot in sorted(self._running):
            stream = self._running[slot]
            rows.append(Row(stream, slot, stream.num_launched))
            stream.num_launched += 1
        return StepPlan(prefills, tuple(rows)) if rows else None

    def observe(self, rows: Sequence[Row], stops: Sequence[bool]) -> list[FinishReason | None]:
        """Take in a collected step: `stops[i]` says that row i's next patch is to be its last.

        Returns for each row the reason why it ended with this patch, or None.
        """
        reasons: list[FinishReason | None] = []
        for row, stop in zip(rows, stops, strict=True):
            stream = row.stream
            reasons.append(stream.finish_reason if row.patch_index == stream.last_index else None)
            if stop:
                stream.observe_stop(row.patch_index + 1)
        self._retire()
        return reasons

    def check_integrity(self) -> None:
        """Every slot and page is either free or owned by exactly one running stream."""
        owned = [page for stream in self._running.values() for page in stream.pages]
        assert len(set(owned)) == len(owned), "a page has two owners"
        assert len(owned) + self._pages.num_free == self._pages.num_pages, "pages do not balance"
        assert len(self._running) + self._slots.num_free == self._slots.num_slots, "slots do not balance"
        self._loras.check_integrity([stream.lora_slot for stream in self._running.values()])

    def _admit(self) -> tuple[Stream, ...]:
        admitted: list[Stream] = []
        num_tokens = 0
        while self._waiting and self._slots.num_free:
            stream = next(iter(self._waiting.values()))
            num_tokens += stream.request.num_prefill
            if admitted and num_tokens > self._max_prefill_tokens:
                break
            pages = self._pages.acquire(stream.request.num_positions)
            if pages is None:
                break
            if stream.lora is not None:
                lora_slot = self._loras.acquire(stream.lora)
                if lora_slot is None:  # nobody overtakes, so the pins of those who run go
                    self._pages.release(pages)
                    break
                stream.lora_slot = lora_slot
            del self._waiting[stream.stream_id]
            stream.slot, stream.pages = self._slots.acquire(), pages
            self._running[stream.slot] = stream
            admitted.append(stream)
        return tuple(admitted)

    def _retire(self) -> None:
        for stream in self.running:
            if stream.fully_launched:
                self._release(stream)

    def _release(self, stream: Stream) -> None:
        del self._running[stream.slot]
        self._slots.release(stream.slot)
        self._pages.release(stream.pages)
        if stream.lora is not None:
            self._loras.release(stream.lora_slot)
