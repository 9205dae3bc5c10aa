"""An exported voice, run by the engine and by the official package, does what the training forward pass does."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from demo_voice.export import folder_bytes, read_main, write_config, write_main, write_vae
from demo_voice.layouts import collate, lay_out
from demo_voice.model_forward import SpeechModel
from demo_voice.model_sizes import voice_config
from demo_voice.model_weights import TrainableWeights, initial_tensors
from demo_voice.vae import AudioVae
from tests.demo_voice.tone_voice import tiny_checkpoint
from tests.engine.harness import CPU, SMALL, Harness, Tape
from tests.oracle.model import OfficialModel
from voxcpm_core.checkpoint.shapes import main_shapes
from voxcpm_core.config import ModelConfig
from voxcpm_core.model.schedule import evaluations
from voxcpm_core.model.voxcpm import VoxCPMModel
from voxcpm_core.types import Condition, SamplingParams, SpeechRequest

SEED, NUM_PATCHES, NUM_STEPS, CFG = 5, 6, 4, 2.0
TEXT, PROMPT_TEXT = "hello the world", "and on "


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("untrained")
    tiny_checkpoint(folder)
    return folder


@pytest.fixture(scope="module")
def harness(folder):
    tape = Tape()
    tape.draws = {SEED: torch.randn(NUM_PATCHES, 4, 8, generator=torch.Generator().manual_seed(1))}
    return Harness(folder, SMALL, tape)


def latents(num_patches: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((4 * num_patches, 8)).astype(np.float32)


def solve(model: SpeechModel, mu: torch.Tensor, noise: torch.Tensor, previous: torch.Tensor) -> torch.Tensor:
    """Guided Euler steps from noise [n, P, C] along the training's velocity."""
    x = noise
    for evaluation in evaluations(NUM_STEPS, CPU, torch.float32):
        tokens = model.time_tokens(evaluation.time.expand(len(x)))
        positive = model.velocity(x, mu, tokens, previous)
        negative = model.velocity(x, torch.zeros_like(mu), tokens, previous)
        scale = (positive * negative).sum((1, 2), True) / (negative.square().sum((1, 2), True) + 1e-8)
        x = x - evaluation.step * (negative * scale + CFG * (positive - negative * scale))
    return x


@pytest.mark.parametrize(
    ("reference", "prompt"),
    [(0, 0), (3, 0), (0, 2), (3, 2)],
    ids=["zero-shot", "reference", "continuation", "combined"],
)
@torch.no_grad()
def test_the_engine_makes_the_patches_of_the_training_forward(reference, prompt, folder, harness):
    reference_latents, prompt_latents = latents(reference, 2), latents(prompt, 3)
    request = harness.prepare(
        SpeechRequest(
            target_text=TEXT,
            prompt_text=PROMPT_TEXT if prompt else "",
            reference=Condition(latents=reference_latents) if reference else None,
            prompt=Condition(latents=prompt_latents) if prompt else None,
            params=SamplingParams(
                cfg_value=CFG, inference_timesteps=NUM_STEPS, min_length=NUM_PATCHES, max_length=NUM_PATCHES, seed=SEED
            ),
        )
    )
    made = torch.from_numpy(harness.run(request).latents)  # [n, P, C]

    frames = torch.cat((*map(torch.from_numpy, (reference_latents, prompt_latents)), made.flatten(0, 1)))
    numbers = np.arange(len(frames)).reshape(-1, 4)
    heard, said, target = np.split(numbers, [reference, reference + prompt])
    laid = lay_out(request.token_ids[:-1], target, heard, said)
    filled = len(laid.token_ids) + 5
    batch = collate([laid, laid], filled)
    model = SpeechModel(harness.model, TrainableWeights(read_main(folder, harness.model), CPU), filled)
    patches = frames[torch.from_numpy(batch.frames)]
    states = model.states(torch.from_numpy(batch.token_ids), patches, torch.from_numpy(batch.audio_rows))

    targets = batch.targets[-NUM_PATCHES:]
    rows = torch.from_numpy(batch.audio_rows[targets] - 1)
    lm_hidden, res_hidden = (hidden.flatten(0, 1)[rows] for hidden in states)
    previous = torch.cat((patches, torch.zeros_like(patches[:1])))[torch.from_numpy(batch.previous[-NUM_PATCHES:])]
    noise = harness.core.runner.decode_step.noise.draws[SEED]
    solved = solve(model, model.conditioning(lm_hidden, res_hidden), noise, previous)
    torch.testing.assert_close(solved, made, atol=1e-4, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_time_tokens_are_the_engines_in_either_precision(dtype, folder, harness):
    tensors = read_main(folder, harness.model)
    engine = VoxCPMModel.load(harness.model, tensors, CPU, dtype, 16)
    times = torch.stack([evaluation.time for evaluation in evaluations(10, CPU, dtype)])
    model = SpeechModel(harness.model, TrainableWeights(tensors, CPU), 16)
    expected = engine.dit.schedule(10)[1]
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        assert torch.equal(model.time_tokens(times), expected)


def test_the_official_package_says_the_same(folder, harness):
    official = OfficialModel(folder)
    noise = harness.core.runner.decode_step.noise.draws[SEED]
    tone = (0.3 * np.sin(np.arange(9000) * 0.05)).astype(np.float32)
    run = official.generate(
        TEXT, steps=NUM_STEPS, cfg=CFG, min_len=NUM_PATCHES, max_len=NUM_PATCHES, reference_wav=tone,
        noise=noise.transpose(1, 2),
    )
    params = SamplingParams(
        cfg_value=CFG, inference_timesteps=NUM_STEPS, min_length=NUM_PATCHES, max_length=NUM_PATCHES, seed=SEED
    )
    ours = harness.run(SpeechRequest(target_text=TEXT, reference=Condition(waveform=tone), params=params))
    np.testing.assert_allclose(ours.latents.transpose(0, 2, 1), run.latents, atol=1e-4)
    np.testing.assert_allclose(ours.audio, run.audio, atol=1e-4)


@pytest.mark.parametrize("size", ["tiny", "demo"])
def test_weights_come_out_as_they_went_in(size):
    config = ModelConfig.from_json(voice_config(size, 512))
    tensors = initial_tensors(config, torch.Generator().manual_seed(0))
    weights = TrainableWeights(tensors, CPU)
    SpeechModel(config, weights, 16)
    exported = weights.checkpoint_tensors(weights.leaves)
    assert exported.keys() == main_shapes(config).keys()
    assert all(torch.equal(exported[name], tensors[name]) for name in tensors)


def test_a_voice_of_the_demo_size_fits_its_limit(tmp_path):
    config = write_config(tmp_path, voice_config("demo", 2000))
    write_main(tmp_path, config, initial_tensors(config, torch.Generator().manual_seed(0)))
    write_vae(tmp_path, config, AudioVae(config.vae).state_dict())
    assert folder_bytes(tmp_path) < 23.8e6  # the tokenizer needs 0.12 of the 24 MB
