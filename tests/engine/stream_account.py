"""Keeps account, without a GPU, of what CUDA's streams are told to wait for.

Streams and events keep account here, and nothing else: work runs at once. A launch knows another to be over that is
before it on its stream, or before an event for which its stream, or the host, has waited.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

NOWHERE = -1  # who touches this is in nobody's way

Place = tuple[str, int]  # of memory: its name, and the number of a part of it
Selection = tuple[Tensor | slice, ...]


class Memory:
    """Memory that is looked at, of which some places are told from each other."""

    def __init__(self, name: str, tensor: Tensor, numbers: Tensor) -> None:
        """`tensor`: all of its storage; `numbers`: int64, which broadcast to it, of the place of each element."""
        assert tensor.nbytes == tensor.untyped_storage().nbytes()
        self._name = name
        self._item_bytes = tensor.element_size()
        self._numbers = numbers.expand(tensor.shape).contiguous()

    def places(self, tensor: Tensor, selection: Selection) -> set[Place]:
        """Where those elements of a view are that an operation selects."""
        scale = tensor.element_size() // self._item_bytes
        strides, start = [scale * stride for stride in tensor.stride()], scale * tensor.storage_offset()
        numbers = self._numbers.as_strided(tensor.shape, strides, start)[selection]
        return {(self._name, number) for number in numbers.unique().tolist() if number != NOWHERE}


class Device:
    """What was launched on which stream, and which launches touched memory before a conflicting one was over."""

    def __init__(self) -> None:
        self.num_streams = 0
        self.host = Counter[int]()  # of each stream: how many launches the host knows to be over
        self.conflicts: set[str] = set()
        self.memories: dict[int, Memory] = {}  # by address
        self._reads: defaultdict[Place, Counter[int]] = defaultdict(Counter)  # each stream's latest launch
        self._writes: defaultdict[Place, Counter[int]] = defaultdict(Counter)
        self.current = Stream(self)

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
                latest[place][stream.number] = stream.num_launched


class Stream:
    def __init__(self, device: Device) -> None:
        self.number, device.num_streams = device.num_streams, device.num_streams + 1
        self.known = Counter[int]()  # of each stream, itself too: how many launches are over before what comes next
        self._device = device

    @property
    def num_launched(self) -> int:
        return self.known[self.number]

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
        """Always over, which lets most happen; but nobody may rely on having asked."""
        return True

    def elapsed_time(self, _later: Event) -> float:
        return 0.0


class Seen(TorchDispatchMode):
    """Calls `launch` with the places that an operation reads, and those that it writes."""

    def __init__(self, device: Device, launch: Callable[[set[Place], set[Place]], None]) -> None:
        super().__init__()
        self._device, self._launch = device, launch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not func.is_view:
            arguments = func._schema.arguments
            given = {argument.name: value for argument, value in zip(arguments, args, strict=False)} | kwargs
            touched: dict[bool, set[Place]] = {False: set(), True: set()}
            for argument in arguments:
                is_written = argument.alias_info is not None and argument.alias_info.is_write
                selection = _selection(given) if argument.name == "self" else ()
                for tensor in (leaf for leaf in tree_leaves(given.get(argument.name)) if isinstance(leaf, Tensor)):
                    memory = self._device.memories.get(tensor.untyped_storage().data_ptr())
                    if memory is not None:
                        touched[is_written] |= memory.places(tensor, selection)
            self._launch(touched[False], touched[True])
        return func(*args, **kwargs)


def _selection(given: Mapping[str, Any]) -> Selection:
    """What of `self` an operation touches that is given the numbers of rows on the device; else all of it."""
    if "indices" in given:
        return tuple(slice(None) if index is None else index for index in given["indices"])
    if isinstance(given.get("index"), Tensor):
        return (*[slice(None)] * (given["dim"] % given["self"].ndim), given["index"])
    return ()
