"""What the scheduler knows of a request, and the plan of one step."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import add
from typing import NamedTuple

from voxcpm_core.lora.pool import NO_SLOT, Digested
from voxcpm_core.scheduler.prefixes import PrefixKey
from voxcpm_core.types import EngineRequest, FinishReason, PadSide


@dataclass(eq=False)
class Stream:
    """One request from admission to its last patch."""

    stream_id: int
    request: EngineRequest
    slot: int = -1
    pages: tuple[int, ...] = ()
    num_known: int = 0  # positions, from the first, whose keys and values its pages hold without a prefill
    tail_source: int | None = None  # page to copy into its own that holds the last of them: it is filled in part
    lora: Digested | None = None  # the adapter that its request names, loaded
    lora_slot: int = NO_SLOT
    encoded: Mapping[PadSide, object] = field(default_factory=dict)  # of its audio, on the device, as the runner has it
    is_prefilled: bool = False  # its prefix is launched
    num_launched: int = 0  # patches launched so far; the next one has this index
    last_index: int = 0  # index of the last patch, as far as is known
    finish_reason: FinishReason = FinishReason.LENGTH  # valid once the last patch is collected
    dropped: bool = False  # cancelled or failed: what is still in flight is discarded

    def __post_init__(self) -> None:
        self.last_index = self.request.max_patches - 1

    @property
    def lora_digest(self) -> str:
        """Of its adapter; "" without one."""
        return "" if self.lora is None else self.lora.digest

    @property
    def num_unknown(self) -> int:
        """Positions of its prefix that its prefill runs."""
        return self.request.num_prefill - self.num_known

    @property
    def prefix_key(self) -> PrefixKey | None:
        """Equal for streams whose prefills begin alike; None for one that begins with its own text."""
        reference = self.request.reference
        return None if reference is None else (reference.digest, self.lora_digest)

    def observe_stop(self, patch_index: int) -> None:
        """The stop head asked, at the end of patch `patch_index - 1`, for this patch to be the last."""
        request = self.request
        if request.ignore_stop or patch_index <= request.min_length or patch_index > self.last_index:
            return
        self.last_index = patch_index
        self.finish_reason = FinishReason.STOP


class Batch:
    """The streams of a decode step, a row each, in the order of admission.

    The same object serves step after step until a stream joins or leaves: what follows from who is there is worked out
    once, and is nobody's to change.
    """

    def __init__(self, streams: Iterable[Stream]) -> None:
        self.streams = tuple(streams)

    @cached_property
    def stream_ids(self) -> list[int]:
        return [stream.stream_id for stream in self.streams]

    @cached_property
    def slots(self) -> list[int]:
        return [stream.slot for stream in self.streams]

    @cached_property
    def prefill_lengths(self) -> list[int]:
        return [stream.request.num_prefill for stream in self.streams]

    @cached_property
    def slots_by_timesteps(self) -> dict[int, list[int]]:
        """Of streams that are solved together, by their number of Euler steps."""
        groups: dict[int, list[int]] = {}
        for stream in self.streams:
            groups.setdefault(stream.request.inference_timesteps, []).append(stream.slot)
        return groups

    @cached_property
    def heard(self) -> list[int]:
        """Rows whose audio is wanted."""
        return [row for row, stream in enumerate(self.streams) if stream.request.wants_audio]

    @cached_property
    def audio_rows(self) -> list[int | None]:
        """Of each stream, where its audio lies among that of all; None where that is not wanted."""
        return [row if stream.request.wants_audio else None for row, stream in enumerate(self.streams)]

    @cached_property
    def has_adapters(self) -> bool:
        return any(stream.lora is not None for stream in self.streams)


class StepPlan(NamedTuple):
    """One engine step: prefill newcomers, then make one patch for every row (newcomers included)."""

    newcomers: tuple[Stream, ...]  # who has a row for the first time
    prefills: tuple[Stream, ...]  # of them, those whose prefixes are still to be run
    batch: Batch
    patch_indices: list[int]  # of each row

    @property
    def max_context(self) -> int:
        """The most KV positions that a row has after this step has fed its patch back."""
        longest: int = max(map(add, self.batch.prefill_lengths, self.patch_indices))
        return longest + 1

    def without(self, streams: Collection[Stream]) -> StepPlan:
        """The same step when these newcomers have no row in it."""
        rows = zip(self.batch.streams, self.patch_indices, strict=True)
        kept = [(stream, index) for stream, index in rows if stream not in streams]
        newcomers = tuple(stream for stream in self.newcomers if stream not in streams)
        batch = Batch(stream for stream, _ in kept)
        return StepPlan(newcomers, self.prefills, batch, [index for _, index in kept])
