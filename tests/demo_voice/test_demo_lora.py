"""An adapter starts as nothing, learns, and is read back by the engine and the official package."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from demo_voice.export import folder_bytes, read_main, write_config
from demo_voice.flow import Frames, TensorBatch
from demo_voice.layouts import collate, lay_out
from demo_voice.lora import new_adapter, write_adapter
from demo_voice.lora_training import LoraTrainer
from demo_voice.model_forward import SpeechModel
from demo_voice.model_sizes import voice_config
from tests.demo_voice.tone_voice import tiny_checkpoint
from tests.engine.harness import CPU, SMALL, Harness
from tests.oracle.model import OfficialModel
from tests.parity.lora import merged_checkpoint
from voxcpm_core.checkpoint.lora import read_lora
from voxcpm_core.model.weights import WeightSource
from voxcpm_core.types import SamplingParams, SpeechRequest

NONE = np.zeros((0, 4), np.int64)


@pytest.fixture
def folder(tmp_path):
    tiny_checkpoint(tmp_path / "voice")
    return tmp_path / "voice"


def saying() -> tuple[TensorBatch, Frames]:
    latents = torch.randn(25, 8, generator=torch.Generator().manual_seed(2))
    laid = lay_out([140, 141, 142], 1 + np.arange(24).reshape(-1, 4), NONE, NONE)
    return TensorBatch(*map(torch.from_numpy, collate([laid], 12))), Frames(latents, torch.zeros(25, dtype=torch.uint8))


def states(model: SpeechModel, batch: TensorBatch, frames: Frames) -> torch.Tensor:
    with torch.no_grad():
        return model.states(batch.token_ids, frames.of(batch).latents, batch.audio_rows).res_hidden


def trained(folder) -> LoraTrainer:
    config = Harness(folder, SMALL).model
    trainer = LoraTrainer(config, read_main(folder, config), CPU, learning_rate=2e-2, seed=0)
    batch, frames = saying()
    torch.manual_seed(0)
    for _ in range(12):
        trainer.step(batch, frames, 1.0)
    return trainer


def test_an_adapter_changes_nothing_until_it_has_learned(folder):
    config = Harness(folder, SMALL).model
    tensors = read_main(folder, config)
    batch, frames = saying()
    trainer = LoraTrainer(config, tensors, CPU, learning_rate=2e-2, seed=0)
    plain = states(SpeechModel(config, WeightSource(tensors, CPU, torch.float32), 16), batch, frames)
    assert torch.equal(states(trainer.model(), batch, frames), plain)
    torch.manual_seed(0)
    first = trainer.step(batch, frames, 1.0).flow.item()
    last = [trainer.step(batch, frames, 1.0).flow.item() for _ in range(24)][-6:]
    assert sum(last) / 6 < 0.9 * first
    assert not torch.allclose(states(trainer.model(), batch, frames), plain, atol=1e-2)


def test_the_written_adapter_is_the_trained_one(folder, tmp_path):
    trainer = trained(folder)
    write_adapter(tmp_path / "lora", trainer.adapter, "demo")
    config = Harness(folder, SMALL).model
    adapter = read_lora(tmp_path / "lora", config)
    assert adapter.scale == trainer.adapter.scale
    for layer, pair in adapter.pairs.items():
        torch.testing.assert_close(pair.b.float(), trainer.adapter.pairs[layer].b.detach(), atol=1e-3, rtol=1e-2)


def test_the_official_package_speaks_with_it(folder, tmp_path):
    write_adapter(tmp_path / "lora", trained(folder).adapter, "demo")
    official = OfficialModel(folder, tmp_path / "lora")
    run = official.generate("hello", steps=3, max_len=4, min_len=4, seed=1)
    harness = Harness(merged_checkpoint(folder, tmp_path / "lora", tmp_path / "merged"), SMALL)
    harness.core.runner.decode_step.noise = lambda seeds, indices, *_: run.noise.transpose(1, 2)[indices]
    params = SamplingParams(inference_timesteps=3, max_length=4, min_length=4, seed=1)
    ours = harness.run(SpeechRequest(target_text="hello", params=params))
    np.testing.assert_allclose(ours.latents.transpose(0, 2, 1), run.latents, atol=1e-3)


def test_an_adapter_of_the_demo_size_is_small(tmp_path):
    config = write_config(tmp_path, voice_config("demo", 2000))
    write_adapter(tmp_path / "lora", new_adapter(config, CPU, torch.Generator().manual_seed(0)), "demo")
    assert folder_bytes(tmp_path / "lora") < 500_000
