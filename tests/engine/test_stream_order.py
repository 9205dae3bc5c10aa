"""What CUDA's streams are told to wait for is enough: whoever touches memory that another launch writes waits for it.

Streams and events keep account here, and nothing else: work runs at once. A launch knows another to be over that is
before it on its stream, or before an event for which its stream, or the host, has waited.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from tests.engine.harness import Harness
from tests.engine.requests import crowd
from tests.engine.test_filled_batches import SETTINGS, FreshArena, RunAgain, graph_set
from voxcpm_core.runner import Runner, evaluations, graphs, prefill_graphs
from voxcpm_core.runner.beside import Beside
from voxcpm_core.runner.transfer import HostCopier

__all__ = ["graph_set"]

CUDA = torch.device("cuda")
BLOCK = 64  # bytes, to which the parts of the outputs are aligned

Place = tuple[str, int]  # of memory: its name, and which block of it


class Device:
    """What was launched on which stream, and which launches touched memory before a conflicting one was over."""

    def __init__(self) -> None:
        self.num_streams = 0
        self.host = Counter[int]()  # of each stream: how many launches the host knows to be over
        self.conflicts: set[str] = set()
        self.names: dict[int, str] = {}  # of the memory that is looked at, by address
        self._reads: defaultdict[Place, Counter[int]] = defaultdict(Counter)  # each stream's latest launch
        self._writes: defaultdict[Place, Counter[int]] = defaultdict(Counter)
        self.current = Stream(self)

    def places(self, tensor: Tensor) -> set[Place]:
        """Where it lies in memory that is looked at; the outputs' parts are told from each other."""
        name = self.names.get(tensor.untyped_storage().data_ptr())
        if name is None:
            return set()
        if name != "outputs":
            return {(name, 0)}
        start = tensor.storage_offset() * tensor.element_size()
        return {(name, block) for block in range(start // BLOCK, -(-(start + tensor.nbytes) // BLOCK))}

    def launch(self, reads: set[Place], writes: set[Place]) -> None:
        stream = self.current
        stream.known |= self.host
        for place in reads | writes:
            conflicting = self._writes[place] | self._reads[place] if place in writes else self._writes[place]
            if not conflicting <= stream.known:
                self.conflicts.add(place[0])
        stream.known[stream.number] += 1
        for latest, places in (self._reads, reads), (self._writes, writes):
            for place in places:
                latest[place][stream.number] = stream.known[stream.number]


class Stream:
    def __init__(self, device: Device) -> None:
        self.number, device.num_streams = device.num_streams, device.num_streams + 1
        self.known = Counter[int]()
        self._device = device

    def wait_event(self, event: Event) -> None:
        self.known |= event.known

    def record_event(self, event: Event) -> None:
        event.record(self)

    def __enter__(self) -> None:
        self._outside, self._device.current = self._device.current, self

    def __exit__(self, *_: object) -> None:
        self._device.current = self._outside


class Event:
    def __init__(self, device: Device) -> None:
        self.known = Counter[int]()
        self._device = device

    def record(self, stream: Stream) -> None:
        self.known = Counter(stream.known)

    def synchronize(self) -> None:
        self._device.host |= self.known

    def query(self) -> bool:
        return False

    def elapsed_time(self, _later: Event) -> float:
        return 0.0


class Seen(TorchDispatchMode):
    """Calls `launch` with the places that an operation reads, and those that it writes."""

    def __init__(self, device: Device, launch: Callable[[set[Place], set[Place]], None]) -> None:
        super().__init__()
        self._device, self._launch = device, launch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        touched: dict[bool, set[Place]] = {False: set(), True: set()}
        for index, argument in enumerate(func._schema.arguments):
            value = args[index] if index < len(args) else kwargs.get(argument.name)
            is_written = argument.alias_info is not None and argument.alias_info.is_write
            for tensor in (leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)):
                touched[is_written] |= self._device.places(tensor)
        if not func.is_view:
            self._launch(touched[False], touched[True])
        return func(*args, **kwargs)


class Recorded(RunAgain):
    """A graph, which is one launch: what it touches is seen when it is recorded."""

    device: Device

    def __init__(self, work: Callable[[], None], pool: object = None, yields: bool = False) -> None:
        self._reads: set[Place] = set()
        self._writes: set[Place] = set()
        with _disable_current_modes(), Seen(self.device, self._see):
            super().__init__(work, pool, yields)

    def _see(self, reads: set[Place], writes: set[Place]) -> None:
        self._reads |= reads
        self._writes |= writes

    def launch(self) -> None:
        self.device.launch(self._reads, self._writes)
        with _disable_current_modes():
            super().launch()


def lasting(runner: Runner) -> Iterator[tuple[str, Tensor]]:
    """Memory that stays where it is, while all else is torch's to care for."""
    stepper, prefill, step = runner.graphs.stepper, runner.graphs.prefill, runner.decode_step
    yield from vars(step.buffers).items()
    yield "pages", step._cache.pages
    yield "outputs", next(iter(stepper._finishings.values())).outputs.memory
    yield "patches", next(iter(stepper._finishings.values())).patches
    holders = {"solving": stepper._solving, "finishing": stepper._finishing, "prefill": prefill}
    for holder_name, holder in {**holders, "evaluations": stepper._evaluations}.items():
        for name, value in vars(holder).items():
            yield from ((f"{holder_name} {name}", leaf) for leaf in tree_leaves(value) if isinstance(leaf, Tensor))


@pytest.fixture
def run(tiny_checkpoints, graph_set, monkeypatch) -> Callable[[], set[str]]:
    """Runs a crowd that comes and goes; what was touched too early."""

    def run() -> set[str]:
        device = Device()
        monkeypatch.setattr(Recorded, "device", device, raising=False)
        harness = Harness(tiny_checkpoints["2"], dataclasses.replace(SETTINGS, run_ahead="on"))
        runner = harness.core.runner
        graph_set(harness)
        monkeypatch.setattr(torch.cuda, "Stream", lambda _device: Stream(device))
        monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing=False: Event(device))
        monkeypatch.setattr(torch.cuda, "current_stream", lambda _device: device.current)
        runner._stepper.beside, runner._copier = Beside(CUDA), HostCopier(CUDA, FreshArena())
        device.names = {tensor.untyped_storage().data_ptr(): name for name, tensor in lasting(runner)}
        with Seen(device, device.launch):
            received = harness.run_staggered(crowd(12), 2)
        assert all(one.error_code is None for one in received)
        assert device.num_streams == 3
        return device.conflicts

    for module in (evaluations, graphs, prefill_graphs):
        monkeypatch.setattr(module, "Replay", Recorded)
    return run


def test_nothing_is_touched_before_who_writes_it_is_done(run):
    assert run() == set()


@pytest.mark.parametrize(
    ("owner", "name", "touched"),
    [(Beside, "follow", {"patches"}), (HostCopier, "hold", {"outputs"})],
)
def test_a_wait_that_is_left_out_is_seen(run, owner, name, touched, monkeypatch):
    monkeypatch.setattr(owner, name, lambda self: None)
    assert touched <= run()


def test_outputs_that_are_copied_before_audio_is_made_are_seen(run, monkeypatch):
    send = HostCopier.send
    monkeypatch.setattr(HostCopier, "send", lambda self, memory, beside: send(self, memory))
    assert "outputs" in run()
