"""What CUDA's streams are told to wait for is enough: who touches memory that another launch writes waits for it.

Looked at are a step, the audio and the copy to the host of the one before, and prefixes beside it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from operator import attrgetter

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from tests.engine.harness import Harness
from tests.engine.requests import crowd
from tests.engine.stream_account import NOWHERE, Device, Event, Memory, Place, Seen, Stream
from tests.engine.test_filled_batches import SETTINGS, FreshArena, RunAgain, graph_set
from voxcpm_core.engine.core import EngineCore
from voxcpm_core.runner import Runner, evaluations, graphs, prefill_graphs
from voxcpm_core.runner.beside import Beside
from voxcpm_core.runner.transfer import HostCopier

__all__ = ["graph_set"]

CUDA = torch.device("cuda")
BLOCK = 64  # bytes, to which the parts of the outputs are aligned


class Recorded(RunAgain):
    """A graph, which is one launch of all that its work touches then."""

    device: Device

    def __init__(self, work: Callable[[], None], pool: object = None, yields: bool = False) -> None:
        with _disable_current_modes():
            super().__init__(work, pool, yields)

    def launch(self) -> None:
        reads: set[Place] = set()
        writes: set[Place] = set()

        def see(more_reads: set[Place], more_writes: set[Place]) -> None:
            reads.update(more_reads)
            writes.update(more_writes)

        with _disable_current_modes(), Seen(self.device, see):
            super().launch()
        self.device.launch(reads, writes)


def lasting(runner: Runner) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Memory that stays where it is, and numbers of its places; all else is torch's to care for.

    Slots and pages are told from each other but for nobody's, which whoever runs beside others may write, too.
    """
    stepper, prefill, step = runner.graphs.stepper, runner.graphs.prefill, runner.decode_step
    for name, rows in vars(step.buffers).items():
        yield name, rows, _numbers(len(rows), rows.ndim - 1)
    pages = step._cache.pages  # [layers, 2, num_pages, page_size, kv_heads, head_dim]
    yield "pages", pages, _numbers(pages.shape[2], 3)
    finishing = stepper._finishings[max(stepper.sizes)]
    yield "outputs", finishing.outputs.memory, torch.arange(len(finishing.outputs.memory)) // BLOCK
    whole = torch.zeros(1, dtype=torch.int64)
    yield "patches", finishing.patches, whole
    holders = {"solving": stepper._solving, "finishing": stepper._finishing, "prefill": prefill}
    for holder_name, holder in {**holders, "evaluations": stepper._evaluations}.items():
        for name, value in vars(holder).items():
            tensors = (leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor))
            yield from ((f"{holder_name} {name}", tensor, whole) for tensor in tensors)


def _numbers(count: int, num_inner_dims: int) -> Tensor:
    """0, 1, 2, ... along a dimension with so many behind it, the last of which is nobody's."""
    numbers = torch.arange(count)
    numbers[-1] = NOWHERE
    return numbers.view(-1, *[1] * num_inner_dims)


@pytest.fixture
def run(tiny_checkpoints, graph_set, monkeypatch) -> Callable[..., set[str]]:
    """Runs a crowd that waits for slots, and one that finds them free; what was touched too early."""

    def run(leave_out: Callable[[EngineCore], None] = lambda core: None) -> set[str]:
        device = Device()
        monkeypatch.setattr(Recorded, "device", device, raising=False)
        harness = Harness(tiny_checkpoints["2"], dataclasses.replace(SETTINGS, run_ahead="on"))
        runner = harness.core.runner
        graph_set(harness)
        monkeypatch.setattr(torch.cuda, "Stream", lambda _device: Stream(device))
        monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing=False: Event(device))
        monkeypatch.setattr(torch.cuda, "current_stream", lambda _device: device.current)
        runner._stepper.beside, runner._beside = Beside(CUDA), Beside(CUDA)
        runner._copier = HostCopier(CUDA, FreshArena())
        device.memories = {
            tensor.untyped_storage().data_ptr(): Memory(name, tensor, numbers)
            for name, tensor, numbers in lasting(runner)
        }
        leave_out(harness.core)
        with Seen(device, device.launch):
            received = [harness.add(request) for request in crowd(8)]
            received += harness.run_staggered(crowd(4), 2, admits=True)
            received += harness.run_staggered(crowd(12, reference=False), 1, admits=True)
        assert all(one.error_code is None for one in received)
        assert device.num_streams == 4
        assert runner._beside._stream.num_launched >= 10, "too few prefixes ran beside"
        return device.conflicts

    for module in (evaluations, graphs, prefill_graphs):
        monkeypatch.setattr(module, "Replay", Recorded)
    return run


def test_nothing_is_touched_before_who_writes_it_is_done(run):
    assert run() == set()


@pytest.mark.parametrize(
    ("owner", "wait", "touched"),
    [
        ("_beside", "join", {"lm_hidden", "pages"}),
        ("_beside", "follow", {"prefill _rows"}),
        ("_stepper.beside", "join", {"outputs", "patches"}),
        ("_stepper.beside", "follow", {"patches"}),
        ("_copier", "hold", {"outputs", "vae_state"}),
    ],
)
def test_a_wait_that_is_left_out_is_seen(run, owner, wait, touched, monkeypatch):
    def leave_out(core: EngineCore) -> None:
        monkeypatch.setattr(attrgetter(owner)(core.runner), wait, lambda *_: None)

    assert touched <= run(leave_out)


def test_outputs_that_are_copied_before_audio_is_made_are_seen(run, monkeypatch):
    send = HostCopier.send
    monkeypatch.setattr(HostCopier, "send", lambda self, memory, beside: send(self, memory))
    assert "outputs" in run()


def test_a_prefix_beside_the_last_step_of_who_had_its_slot_before_is_seen(run, monkeypatch):
    def leave_out(core: EngineCore) -> None:
        monkeypatch.setattr(core._scheduler, "is_running", lambda _: True)

    assert "vae_state" in run(leave_out)
