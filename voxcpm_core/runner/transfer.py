"""Device-to-host copies of step outputs: beside the next step's work on CUDA, nothing at all on the CPU."""

from __future__ import annotations

from typing import Protocol

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
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        if beside is not None:
            self._stream.wait_stream(beside)
        with torch.cuda.stream(self._stream):
            _copy(hosts, tensors)
        self._latest = self._stream.record_event()
        return HostCopy(hosts, tensors, self._latest, self._arena, slot)

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


class HostCopy:
    """Tensors on their way to the host. `wait` blocks until they are there."""

    def __init__(
        self, hosts: list[Tensor], sources: list[Tensor], done: torch.cuda.Event | None, arena: HostArena | None,
        slot: int,
    ) -> None:
        self._hosts = hosts
        self._sources = sources  # kept: torch would give their memory away without regard to the copying stream
        self._done = done
        self._arena = arena
        self._slot = slot

    @property
    def is_done(self) -> bool:
        return self._done is None or self._done.query()

    def wait(self) -> list[Tensor]:
        try:
            if self._done is not None:
                self._done.synchronize()
            return self._hosts
        finally:
            self._sources = []
            if self._arena is not None:
                self._arena.collected(self._slot)


def _copy(hosts: list[Tensor], tensors: list[Tensor]) -> None:
    for host, dev in zip(hosts, tensors, strict=True):
        host.copy_(dev, non_blocking=True)
