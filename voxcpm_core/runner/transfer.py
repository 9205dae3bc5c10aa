"""Device-to-host copies of step outputs: beside the next step's work on CUDA, nothing at all on the CPU."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class HostArena(Protocol):
    """Host memory for the outputs of steps, given out slot by slot."""

    def take(self, like: list[Tensor]) -> tuple[int, list[Tensor]]:
        """A slot, and host tensors in it with the shapes and types of `like`."""
        ...

    def collected(self, slot: int) -> None:
        """The step is over: its outputs were read, or it failed."""
        ...


class HostCopier:
    """Sends the outputs of steps to the host, into `arena` where there is one.

    On CUDA a stream of its own copies, so that the next step starts at once. Whoever overwrites what was sent calls
    `hold` before.
    """

    def __init__(self, device: torch.device, arena: HostArena | None = None) -> None:
        self._device = device
        self._arena = arena
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._latest: torch.cuda.Event | None = None

    def send(self, tensors: list[Tensor], beside: torch.cuda.Stream | None = None) -> HostCopy:
        """Begin to copy what the current stream, and the one beside it, make of `tensors`."""
        slot, hosts = self._take(tensors)
        if self._stream is None:
            if self._arena is not None:
                _copy(hosts, tensors)
            return HostCopy(hosts, [], None, self._arena, slot)
        free, done = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        free.record(torch.cuda.current_stream(self._device))
        self._stream.wait_event(free)
        if beside is not None:
            self._stream.wait_stream(beside)
        with torch.cuda.stream(self._stream):
            _copy(hosts, tensors)
        done.record(self._stream)
        self._latest = done
        return HostCopy(hosts, tensors, Times(free, done), self._arena, slot)

    def hold(self) -> None:
        """Let the current stream's further work wait for the copies under way, and for what makes their contents; the
        host does not wait."""
        if self._latest is not None:
            torch.cuda.current_stream(self._device).wait_event(self._latest)

    def _take(self, tensors: list[Tensor]) -> tuple[int, list[Tensor]]:
        if self._arena is not None:
            return self._arena.take(tensors)
        if self._stream is None:
            return 0, tensors
        # torch caches pinned blocks, so this allocates only until every size has been seen twice.
        return 0, [torch.empty(t.shape, dtype=t.dtype, pin_memory=True) for t in tensors]


class Times(NamedTuple):
    """Of a step on the device."""

    free: torch.cuda.Event  # from then on it is at work for the next step; what is made beside may not be ready
    done: torch.cuda.Event  # the copy


class HostCopy:
    """Tensors on their way to the host. `wait` blocks until they are there."""

    def __init__(
        self, hosts: list[Tensor], sources: list[Tensor], times: Times | None, arena: HostArena | None, slot: int
    ) -> None:
        self._hosts = hosts
        self._sources = sources  # kept: torch would give their memory away without regard to the copying stream
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

    def wait(self) -> list[Tensor]:
        try:
            if self._times is not None:
                self._times.done.synchronize()
            return self._hosts
        finally:
            self._sources = []
            if self._arena is not None:
                self._arena.collected(self._slot)


def _copy(hosts: list[Tensor], tensors: list[Tensor]) -> None:
    for host, dev in zip(hosts, tensors, strict=True):
        host.copy_(dev, non_blocking=True)
