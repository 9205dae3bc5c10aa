"""Device-to-host copies of step outputs: beside the next step's work on CUDA, nothing at all on the CPU."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from voxcpm_core.runner.beside import Beside


class HostArena(Protocol):
    """Host memory for the outputs of steps, given out slot by slot."""

    def take(self, num_bytes: int) -> tuple[int, Tensor]:
        """A slot, and so much of its memory. # uint8 [num_bytes]"""
        ...

    def collected(self, slot: int) -> None:
        """The step is over: its outputs were read, or it failed."""
        ...


class HostCopier:
    """Sends the outputs of steps to the host, into `arena` where there is one.

    On CUDA a stream of its own copies, so that the next step starts at once on the stream that is current when this is
    made. Whoever overwrites what was sent calls `hold` before.
    """

    def __init__(self, device: torch.device, arena: HostArena | None = None) -> None:
        self._arena = arena
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._engine, self._stream = torch.cuda.current_stream(device), torch.cuda.Stream(device)
        self._latest: torch.cuda.Event | None = None

    def send(self, memory: Tensor, beside: Beside | None = None) -> HostCopy:
        """Begin to copy memory uint8 [n], once what was launched by now, beside too, has filled it."""
        slot, host = self._take(memory)
        if self._stream is None:
            if self._arena is not None:
                host.copy_(memory)
            return HostCopy(host, None, None, self._arena, slot)
        free, done = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        free.record(self._engine)
        self._stream.wait_event(free)
        if beside is not None:
            beside.join(self._stream)
        with self._stream:
            host.copy_(memory, non_blocking=True)
        done.record(self._stream)
        self._latest = done
        return HostCopy(host, memory, Times(free, done), self._arena, slot)

    def hold(self) -> None:
        """Let the engine's further work wait for the copies under way, and for what makes their contents; the host does
        not wait."""
        if self._latest is not None:
            self._engine.wait_event(self._latest)

    def _take(self, memory: Tensor) -> tuple[int, Tensor]:
        if self._arena is not None:
            return self._arena.take(len(memory))
        if self._stream is None:
            return 0, memory
        # torch caches pinned blocks, so this allocates only until every size has been seen twice.
        return 0, torch.empty(len(memory), dtype=torch.uint8, pin_memory=True)


class Times(NamedTuple):
    """Of a step on the device."""

    free: torch.cuda.Event  # from then on it is at work for the next step; what is made beside may not be ready
    done: torch.cuda.Event  # the copy


class HostCopy:
    """Outputs on their way to the host. `wait` blocks until they are there."""

    def __init__(
        self, host: Tensor, source: Tensor | None, times: Times | None, arena: HostArena | None, slot: int
    ) -> None:
        self._host = host
        self._source = source  # kept: torch would give its memory away without regard to the copying stream
        self._times = times
        self._arena = arena
        self._slot = slot

    @property
    def device_is_free(self) -> bool:
        return self._times is None or self._times.free.query()

    @property
    def lag_s(self) -> float:
        """Between the device being free and the end of the copy, once that is over."""
        return 0.0 if self._times is None else self._times.free.elapsed_time(self._times.done) / 1e3

    def wait(self) -> Tensor:
        """uint8 [n], as it was sent."""
        try:
            if self._times is not None:
                self._times.done.synchronize()
            return self._host
        finally:
            self._source = None
            if self._arena is not None:
                self._arena.collected(self._slot)
