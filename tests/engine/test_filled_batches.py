"""Batches filled up with nobody's slot, as CUDA graphs have them, give what batches of exactly the rows give.

Also solves in pieces, as graphs of single evaluations run them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.engine.harness import CPU, SMALL, Harness
from tests.engine.requests import tone
from tests.kernels.flash_stand_in import flash_stand_in
from tests.lora.adapters import add_adapter
from voxcpm_core.config import ModelConfig
from voxcpm_core.kernels.kernel_set import TORCH_KERNELS
from voxcpm_core.kernels.lora import LoraStack
from voxcpm_core.model.voxcpm import VoxCPMModel
from voxcpm_core.output_layout import OutputLayout
from voxcpm_core.runner import evaluations, graphs, prefill_graphs
from voxcpm_core.runner.graph_set import GraphSet, make_graphs
from voxcpm_core.runner.sizes import PrefillShapes, RunnerSizes, batch_sizes
from voxcpm_core.runner.transfer import HostCopier
from voxcpm_core.types import SamplingParams, SpeechRequest

__all__ = ["flash_stand_in"]

MAX_RUNNING = 5
SETTINGS = dataclasses.replace(SMALL, max_running=MAX_RUNNING)


class RunAgain:
    """A `Replay` for the CPU: it runs the same work on the same memory, as long as it would be the same."""

    model: VoxCPMModel  # that is recorded

    def __init__(self, work: Callable[[], None], pool: object = None, yields: bool = False) -> None:
        self._work = work
        self._is_plain = self.model.is_plain
        self._is_adapted = not yields and "_gather" not in work.__qualname__  # audio is not, and no copy
        work()

    def launch(self) -> None:
        assert not self._is_adapted or self.model.is_plain == self._is_plain, "a recording has adapters or it has none"
        self._work()


class FreshArena:
    """New host memory for each step, as the outputs of graphs are overwritten."""

    def take(self, num_bytes: int) -> tuple[int, torch.Tensor]:
        return 0, torch.empty(num_bytes, dtype=torch.uint8)

    def collected(self, slot: int) -> None:
        """Nobody takes it."""


@pytest.fixture
def graph_set(monkeypatch: pytest.MonkeyPatch) -> Callable[[Harness], GraphSet]:
    """Gives a harness the graphs of a GPU's engine, run again instead of replayed."""
    for module in (evaluations, graphs, prefill_graphs):
        monkeypatch.setattr(module, "Replay", RunAgain)
    monkeypatch.setattr(prefill_graphs, "PATCH_COUNTS", (8, 64))
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)

    def install(harness: Harness) -> GraphSet:
        runner, config = harness.core.runner, harness.config
        monkeypatch.setattr(RunAgain, "model", runner.model, raising=False)
        sizes = RunnerSizes(
            MAX_RUNNING, harness.core.memory.num_pages, config.kv_page_size, config.max_model_len, 4,
            config.max_timesteps,
        )
        made = make_graphs(runner.decode_step, runner.prefill_step, sizes, TORCH_KERNELS.layer_ops)
        runner._stepper, runner._prefill._runner = made.stepper, made.prefill
        runner._copier = HostCopier(CPU, FreshArena())
        runner.graphs = made
        return made

    return install


def requests(model: ModelConfig) -> list[SpeechRequest]:
    """More than run at once, of different lengths and numbers of Euler steps, of which one is solved whole.

    One is not heard, and some are conditioned by audio, of which two by the same: what is left of the second one's
    prefix, filled up, goes beyond the last position.
    """
    audio = {1: {"prompt": tone(90 * model.encoder_samples_per_patch), "prompt_text": "hello"}}
    if model.supports_reference:
        audio[3] = audio[6] = {"reference": tone(226 * model.encoder_samples_per_patch, 0.11)}
    return [
        SpeechRequest(
            target_text="hello the world"[: 5 + 3 * i],
            params=SamplingParams(seed=i, inference_timesteps=4 + i % 2, min_length=3 + i, max_length=3 + i),
            wants_audio=i != 2,
            **audio.get(i, {}),
        )
        for i in range(MAX_RUNNING + 2)
    ]


@pytest.mark.parametrize(("generation", "attention"), [("0.5", "triton"), ("2", "triton"), ("2", "flash")])
def test_filling_up_changes_nothing_and_nobodys_slot_never_runs_out(
    generation, attention, tiny_checkpoints, graph_set, flash_stand_in, monkeypatch, tmp_path
):
    received, shapes = [], []
    for with_graphs in (False, True):
        settings = dataclasses.replace(
            SETTINGS, attention=attention, lora_root=str(tmp_path) if generation == "2" else ""
        )
        harness = Harness(tiny_checkpoints[generation], settings)
        if with_graphs:
            prefill = graph_set(harness).prefill
            harness.core.runner.capture()
            monkeypatch.setattr(prefill, "_graph", lambda shape, of=prefill._graph: shapes.append(shape) or of(shape))
        wanted = requests(harness.model)
        if generation == "2":
            refs = [None, *(add_adapter(tmp_path, harness.model, name, alpha=1) for name in "ab")]
            wanted = [dataclasses.replace(request, lora=refs[i % 3]) for i, request in enumerate(wanted)]
        streams = [harness.add(request) for request in wanted]
        harness.drain()
        received.append(streams)
        assert harness.core.stats().num_shared_positions == (228 if generation == "2" else 0)
    assert (flash_stand_in.num_calls > 0) == (attention == "flash")
    assert shapes[0].rows > 1, "newcomers are prefilled together"
    for exact, padded in zip(*received, strict=True):
        assert exact.finish_reason == padded.finish_reason
        np.testing.assert_allclose(padded.latents, exact.latents, atol=1e-5)
        if exact.patches[0].audio is None:
            assert padded.patches[0].audio is None
        else:
            np.testing.assert_allclose(padded.audio, exact.audio, atol=1e-5)


def test_no_audio_is_made_or_sent_while_nobody_hears_any(tiny_checkpoints, graph_set, monkeypatch):
    harness = Harness(tiny_checkpoints["2"], SETTINGS)
    stepper = graph_set(harness).stepper
    runner, sent_bytes, num_audios = harness.core.runner, [], []
    send = runner._copier.send
    monkeypatch.setattr(runner._copier, "send", lambda memory, beside: sent_bytes.append(len(memory)) or send(memory))
    monkeypatch.setattr(stepper, "beside", SimpleNamespace(
        join=lambda: None, follow=lambda: None, launch=lambda work: num_audios.append(1) or work()
    ))  # fmt: skip
    for wants_audio in (False, True):
        params = SamplingParams(max_length=3, min_length=3)
        stream = harness.add(SpeechRequest("hello", params=params, wants_audio=wants_audio))
        harness.drain()
        assert [patch.audio is not None for patch in stream.patches] == [wants_audio] * 3
    assert len(num_audios) == 3
    layout = OutputLayout.of(harness.model)
    assert sent_bytes == [layout.num_bytes(1, wants_audio) for wants_audio in [False] * 3 + [True] * 3]


def test_a_batch_without_adapters_pays_nothing_for_those_that_are_served(
    tiny_checkpoints, graph_set, monkeypatch, tmp_path
):
    """Counted where adapters are added, while one comes and goes between others that have none."""
    harness = Harness(tiny_checkpoints["2"], dataclasses.replace(SETTINGS, lora_root=str(tmp_path)))
    graph_set(harness)
    harness.core.runner.capture()
    num_added = [0]
    monkeypatch.setattr(LoraStack, "add", counted(LoraStack.add, num_added))
    monkeypatch.setattr(RunAgain, "__init__", nothing_is_recorded)
    one, other = (SpeechRequest("hello the world", params=SamplingParams(seed=i, max_length=3)) for i in range(2))
    adapted = dataclasses.replace(other, lora=add_adapter(tmp_path, harness.model, "a", alpha=1))
    alone, with_adapter, after = [], [], []
    for requests, streams in ((one, other), alone), ((one, adapted), with_adapter), ((one, other), after):
        num_before = num_added[0]
        streams += [harness.add(request) for request in requests]
        harness.drain()
        assert (num_added[0] > num_before) == (adapted in requests)
    for streams in (with_adapter, after):
        np.testing.assert_allclose(streams[0].latents, alone[0].latents, atol=1e-5)
    np.testing.assert_array_equal(after[1].latents, alone[1].latents)
    assert np.abs(with_adapter[1].latents - alone[1].latents).max() > 1e-3


def counted(add, count):
    def wrapper(self, *arguments, **more):
        count[0] += self.selection.rows is not None
        return add(self, *arguments, **more)

    return wrapper


def nothing_is_recorded(self, *_arguments, **_more):
    raise AssertionError("recorded while streams run")


def test_every_newcomer_is_in_one_batch_that_holds_it():
    rng = np.random.default_rng(0)
    for max_positions, max_running in ((20, 1), (256, 3), (1024, 16), (4096, 64)):
        shapes = PrefillShapes(max_positions, max_running)
        lengths = [int(length) for length in rng.integers(1, max_positions + 1, size=max_running)]
        batches = shapes.batches(lengths)
        assert sorted(index for batch in batches for index in batch.members) == list(range(max_running))
        for members, shape, has_graph in batches:
            assert shape.positions <= max_positions
            assert shape.positions >= max(lengths[index] for index in members)
            assert has_graph == (shape in shapes.all)
            assert len(members) <= shape.rows <= len(members) * 4 / 3
    assert shapes.shortest_eager == 1280
    assert PrefillShapes(1000, 1).shortest_eager is None


def test_few_rows_are_filled_up():
    for max_running in (1, 3, 16, 17, 64, 100, 256):
        sizes = batch_sizes(max_running)
        assert sizes == sorted(set(sizes))
        assert sizes[-1] == max_running
        for num_rows in range(1, max_running + 1):
            size = min(size for size in sizes if size >= num_rows)
            assert size - num_rows <= max(1, num_rows / 8)
