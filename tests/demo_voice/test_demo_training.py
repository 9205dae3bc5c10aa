"""The model learns what it is shown, survives numbers that are none, and writes what it reached."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from demo_voice.export import write_main
from demo_voice.flow import Frames, Losses, TensorBatch
from demo_voice.layouts import Batch, BatchShape, bring_to, collate, lay_out
from demo_voice.model_training import ModelTrainer
from demo_voice.model_weights import initial_tensors
from demo_voice.schedule import Clock, learning_rate_share
from tests.demo_voice.tone_voice import tiny_checkpoint
from tests.engine.harness import CPU, SMALL, Harness
from voxcpm_core.types import FinishReason, SamplingParams, SpeechRequest

LENGTHS = {"hello": 4, "the world": 6}  # patches
NONE = np.zeros((0, 4), np.int64)


@pytest.fixture
def trainer(tmp_path):
    config = tiny_checkpoint(tmp_path)
    torch.manual_seed(0)
    return ModelTrainer(config, initial_tensors(config, torch.Generator().manual_seed(0)), CPU, learning_rate=8e-3)


def lesson(harness: Harness) -> tuple[TensorBatch, Frames, dict[str, torch.Tensor]]:
    """One batch of both sayings; all frames; and the latents of each saying. # [n, P, C]"""
    latents = torch.randn(1 + 4 * sum(LENGTHS.values()), 8, generator=torch.Generator().manual_seed(2))
    sequences, sayings, first = [], {}, 1
    for text, num_patches in LENGTHS.items():
        frames = first + np.arange(4 * num_patches).reshape(-1, 4)
        sequences.append(lay_out(harness.tokenizer.encode(text), frames, NONE, NONE))
        sayings[text] = latents[torch.from_numpy(frames)]
        first += frames.size
    frames = Frames(latents, torch.arange(len(latents)).remainder(3).byte())
    return TensorBatch(*map(torch.from_numpy, collate(sequences, 16))), frames, sayings


def test_two_sayings_are_learned_by_heart(trainer, tmp_path):
    batch, frames, sayings = lesson(Harness(tmp_path, SMALL))
    first = trainer.step(batch, frames, 1.0)
    for step in range(260):
        last = trainer.step(batch, frames, learning_rate_share(0.02 + step / 266))
    assert last.flow.item() < 0.5 * first.flow.item()
    assert last.stop.item() < 0.05
    assert last.phones.item() < 0.1 * first.phones.item()
    assert trainer.settle(last)
    config = Harness(tmp_path, SMALL).model
    write_main(tmp_path, config, trainer.checkpoint_tensors())

    harness = Harness(tmp_path, SMALL)
    for text, own in sayings.items():
        params = SamplingParams(cfg_value=1.0, seed=3, max_length=20)
        received = harness.run(SpeechRequest(target_text=text, params=params))
        assert received.finish_reason == FinishReason.STOP
        assert len(received.latents) == len(own)
        made = torch.from_numpy(received.latents)
        distances = {other: (made[:4] - sayings[other][:4]).square().mean().item() for other in sayings}
        assert min(distances, key=distances.get) == text
        assert distances.pop(text) < 0.5 * min(distances.values())


def test_a_loss_that_is_no_number_leads_back_to_the_last_good_weights(trainer, tmp_path):
    batch, frames, _ = lesson(Harness(tmp_path, SMALL))
    assert trainer.settle(trainer.step(batch, frames, 1.0))
    good = {name: tensor.clone() for name, tensor in trainer.checkpoint_tensors().items()}
    bad = trainer.step(batch, frames._replace(latents=frames.latents * float("nan")), 1.0)
    assert not trainer.settle(bad)
    assert all(torch.equal(good[name], tensor) for name, tensor in trainer.checkpoint_tensors().items())
    assert trainer.settle(trainer.step(batch, frames, 1.0))


def test_what_fills_a_batch_up_changes_no_loss(trainer, tmp_path, monkeypatch):
    monkeypatch.setattr("demo_voice.flow.MAX_HISTORY_NOISE", 0.0)
    plain, frames, _ = lesson(Harness(tmp_path, SMALL))
    filled = bring_to(BatchShape(3, 16, 20, 14), Batch(*(part.numpy() for part in plain)), np.random.default_rng(0))
    found = [trainer.step(batch, frames, 0.0) for batch in (plain, TensorBatch(*map(torch.from_numpy, filled)))]
    torch.testing.assert_close(found[0].stop, found[1].stop)
    torch.testing.assert_close(found[0].patch, found[1].patch)
    torch.testing.assert_close(found[0].phones, found[1].phones)
    torch.testing.assert_close(found[0].flow, found[1].flow, rtol=0.5, atol=0)  # noise and times are others


def test_an_error_in_training_does_not_lose_the_weights(trainer, tmp_path):
    batch, frames, _ = lesson(Harness(tmp_path, SMALL))
    saved: list[dict[str, torch.Tensor]] = []

    def batches():
        yield batch
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="disk"):
        trainer.run(Clock(1.0), batches(), lambda: frames, lambda: saved.append(trainer.checkpoint_tensors()))
    assert len(saved) == 1


def test_no_time_means_no_step_and_the_weights_as_they_were(trainer):
    saved = []
    assert trainer.run(Clock(0.0), iter(()), list, lambda: saved.append(True)) == {}
    assert saved == [True]


def test_the_learning_rate_rises_and_falls_to_its_end():
    shares = [learning_rate_share(step / 1000) for step in range(1001)]
    peak = shares.index(max(shares))
    assert shares[peak] == pytest.approx(1.0)
    assert shares[: peak + 1] == sorted(shares[: peak + 1])
    assert shares[peak:] == sorted(shares[peak:], reverse=True)
    assert 0 < shares[-1] < 0.05


def test_the_total_weighs_every_loss():
    one, none = torch.tensor(1.0), torch.tensor(0.0)
    totals = [Losses(*(one if i == j else none for j in range(4))).total() for i in range(4)]
    assert all(total > 0 for total in totals)
