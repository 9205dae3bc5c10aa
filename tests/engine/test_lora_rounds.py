"""Adapters that come and go for a long time: the same names, other weights, few slots."""

from __future__ import annotations

import dataclasses
import itertools
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest

from tests.engine.harness import SMALL, Harness
from tests.engine.requests import crowd
from tests.lora.adapters import add_adapter
from voxcpm_core.lora.facts import LoraFacts
from voxcpm_core.lora.registration import new_record
from voxcpm_core.lora.store import LoraStore
from voxcpm_core.types import FloatArray, LoraRef

NUM_SLOTS = 4
PATHS = tuple(map(str, range(NUM_SLOTS + 1)))  # one more than there are slots


class Rounds:
    """Registers, generates and unregisters: four rounds share their steps, and take slots from those before."""

    def __init__(self, checkpoint: Path, root: Path) -> None:
        self.config = dataclasses.replace(SMALL, lora_root=str(root), max_loras=NUM_SLOTS)
        self.harness = Harness(checkpoint, self.config)
        self.store = LoraStore(str(root))
        request = crowd(1)[0]
        params = dataclasses.replace(request.params, max_length=1, inference_timesteps=2)
        self._request = dataclasses.replace(request, params=params, wants_audio=False)
        self._next_path = itertools.cycle(PATHS)
        # Of the projections alone, which are sooner read.
        refs = [add_adapter(root, self.harness.model, path, seed=int(path), names=()) for path in PATHS]
        self.expected = {ref.path: self._latents([ref])[0] for ref in refs}

    def check_lora(self, path: str) -> Future[LoraFacts]:
        return self.harness.core.loras.check(path)

    def run(self, count: int) -> None:
        for _ in range(count // NUM_SLOTS):
            paths = {f"round {index}": next(self._next_path) for index in range(NUM_SLOTS)}
            for name, path in paths.items():
                self.store.add(new_record(self.store, self, name, path, None, None))
            latents = self._latents([self.store.get(name).ref for name in paths])
            for (name, path), found in zip(paths.items(), latents, strict=True):
                np.testing.assert_allclose(found, self.expected[path], atol=1e-5, rtol=0)
                self.store.remove(name)

    def _latents(self, refs: list[LoraRef]) -> list[FloatArray]:
        streams = [self.harness.add(dataclasses.replace(self._request, lora=ref)) for ref in refs]
        self.harness.drain()
        return [stream.latents for stream in streams]


def resident_kib() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


@pytest.mark.parametrize(
    ("count", "growth_kib"), [(200, 4096), pytest.param(10_000, 16_384, marks=pytest.mark.soak)]  # as with voices
)
def test_rounds_of_registering_and_unregistering_leave_memory_flat(
    tiny_checkpoints: dict[str, Path], tmp_path: Path, count: int, growth_kib: int
):
    rounds = Rounds(tiny_checkpoints["2"], tmp_path)
    assert len({latents.tobytes() for latents in rounds.expected.values()}) == len(PATHS)
    rounds.run(20)
    before = resident_kib()
    rounds.run(count)
    assert resident_kib() - before < growth_kib
    library = rounds.harness.core.loras
    assert len(library._loaded) == NUM_SLOTS, "what is on the device"
    assert library._loading == {}
    assert rounds.store.records() == []
    assert rounds.harness.core._scheduler._loras.num_pinned == 0
    rounds.harness.core._scheduler.check_integrity()
