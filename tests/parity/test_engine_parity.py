"""The whole engine against the official package, live: latents, stop decisions and audio in fp32.

Both sides get the same text, the same waveforms and the same noise; everything else is computed twice.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from tests.checkpoint.lora_folder import make_lora
from tests.engine.harness import SMALL, Harness, Tape
from tests.lora.adapters import ref_of
from tests.oracle.model import OfficialModel, OfficialRun
from tests.parity import figures
from tests.parity.lora import merged_checkpoint
from voxcpm_core.checkpoint.load import load_config
from voxcpm_core.types import Condition, FinishReason, SamplingParams, SpeechRequest

TEXTS = {"english": "Hello the world, this is a test.", "chinese": "你好，世界。今天天气真好"}
PROMPT_TEXT = "hello 语音"
MAX_PATCHES = 10
LORA_PATCHES = 6  # merging rounds differently, and every patch amplifies it
SEED = 1234
STEPS_AND_CFG = list(itertools.product((1, 5, 10), (1.0, 2.0, 3.0)))


@pytest.fixture(scope="module")
def harnesses(tiny_checkpoints):
    return {generation: Harness(folder, SMALL, Tape()) for generation, folder in tiny_checkpoints.items()}


def wave(num_patches: float, samples_per_patch: int, step: float) -> np.ndarray:
    """A tone over so many patches; not a whole number of them, so that padding shows."""
    t = np.arange(int(num_patches * samples_per_patch) - 3)
    return (0.3 * np.sin(t * step) + 0.1 * np.sin(t * 0.31)).astype(np.float32)


def modes(generation: str) -> list[tuple[str, float, float]]:
    """(name, prompt patches, reference patches); 0: without."""
    both = [("zero-shot", 0, 0), ("continuation-1", 1, 0), ("continuation-2", 2, 0), ("continuation-many", 6.4, 0)]
    if generation != "2":
        return both
    return [*both, ("reference-1", 0, 1), ("reference-many", 0, 5.5), ("combined-1", 1, 2), ("combined-many", 6.4, 4.2)]


CASES = [
    pytest.param(generation, mode, language, *STEPS_AND_CFG[(index * 2 + offset) % len(STEPS_AND_CFG)],
                 id=f"{generation}-{mode[0]}-{language}")
    for generation in ("0.5", "1.5", "2")
    for index, mode in enumerate(modes(generation))
    for offset, language in enumerate(TEXTS)
] + [
    pytest.param(generation, ("zero-shot", 0, 0), "english", steps, cfg, id=f"{generation}-steps{steps}-cfg{cfg:g}")
    for generation in ("0.5", "1.5", "2")
    for steps, cfg in STEPS_AND_CFG
]


@pytest.mark.parametrize(("generation", "mode", "language", "steps", "cfg"), CASES)
def test_parity(generation, mode, language, steps, cfg, official_models, harnesses):
    official, harness = official_models[generation], harnesses[generation]
    _, prompt_patches, reference_patches = mode
    samples = harness.model.encoder_samples_per_patch
    prompt = wave(prompt_patches, samples, 0.05) if prompt_patches else None
    reference = wave(reference_patches, samples, 0.11) if reference_patches else None
    text = TEXTS[language]
    run = official.generate(
        text, prompt, PROMPT_TEXT if prompt_patches else None, reference, steps, cfg, max_len=MAX_PATCHES, seed=SEED
    )
    harness.core.runner.decode_step.noise.draws = {SEED: run.noise.transpose(1, 2)}
    request = harness.prepare(
        SpeechRequest(
            target_text=text,
            prompt_text=PROMPT_TEXT if prompt_patches else "",
            prompt=Condition(waveform=prompt) if prompt_patches else None,
            reference=Condition(waveform=reference) if reference_patches else None,
            params=SamplingParams(cfg_value=cfg, max_length=MAX_PATCHES, seed=SEED),
        )
    )
    assert request.token_ids[:-1] == run.token_ids
    # One timestep is for the core alone: the public contract starts at two.
    request = dataclasses.replace(request, inference_timesteps=steps)
    check(harness, request, run, lost_patches(generation, prompt_patches))


def lost_patches(generation: str, prompt_patches: float) -> int:
    """The official V1 decode always drops two patches' samples, so a one-patch prompt loses a generated one."""
    return 1 if generation != "2" and prompt_patches == 1 else 0


def check(harness: Harness, request, run: OfficialRun, num_lost: int = 0) -> FinishReason:
    """Compare one run with the engine's; returns how it ended."""
    received = harness.run(request)
    num_patches = len(run.latents)
    figures.num_runs += 1
    figures.assert_close("latents", received.latents.transpose(0, 2, 1), run.latents, 1e-4)
    stops = run.stop_logits.argmax(-1).tolist()
    stopped = num_patches - 1 > request.min_length and stops[-1] == 1
    assert received.finish_reason == (FinishReason.STOP if stopped else FinishReason.LENGTH)
    kept = received.audio[num_lost * harness.model.samples_per_patch :]
    figures.assert_close("audio", kept, run.audio, 1e-4)
    return received.finish_reason


@pytest.mark.parametrize("generation", ["0.5", "1.5", "2"])
def test_stop_decisions(generation, official_models, harnesses):
    official, harness = official_models[generation], harnesses[generation]
    reasons = set()
    for seed, (text, max_len) in enumerate(itertools.product(TEXTS.values(), (4, 5, 6, 40))):
        run = official.generate(text, steps=4, max_len=max_len, seed=seed)
        harness.core.runner.decode_step.noise.draws = {seed: run.noise.transpose(1, 2)}
        params = SamplingParams(inference_timesteps=4, max_length=max_len, seed=seed)
        reasons.add(check(harness, harness.prepare(SpeechRequest(target_text=text, params=params)), run))
    assert reasons == set(FinishReason), "otherwise the comparison would be empty"


@pytest.mark.parametrize("generation", ["0.5", "1.5", "2"])
def test_merged_and_served_loras_equal_the_official_adapter(generation, tiny_checkpoints, tmp_path):
    lora = tmp_path / "lora"
    make_lora(lora, load_config(tiny_checkpoints[generation]), r=4, alpha=4)
    official = OfficialModel(tiny_checkpoints[generation], lora=lora)
    tape = Tape()
    harness = Harness(merged_checkpoint(tiny_checkpoints[generation], lora, tmp_path / "merged"), SMALL, tape)
    run = official.generate(TEXTS["english"], max_len=LORA_PATCHES, seed=SEED)
    tape.draws[SEED] = run.noise.transpose(1, 2)
    params = SamplingParams(max_length=LORA_PATCHES, seed=SEED)
    check(harness, harness.prepare(SpeechRequest(target_text=TEXTS["english"], params=params)), run)
    serving = Harness(tiny_checkpoints[generation], dataclasses.replace(SMALL, lora_root=str(tmp_path)), tape)
    speech = SpeechRequest(target_text=TEXTS["english"], params=params)
    beside = serving.add(speech)  # in one batch with a row that has none
    check(serving, serving.prepare(dataclasses.replace(speech, lora=ref_of(tmp_path, "lora"))), run)
    plain = Harness(tiny_checkpoints[generation], SMALL, tape)
    other = plain.run(plain.prepare(speech))
    np.testing.assert_allclose(beside.latents, other.latents, atol=1e-5, rtol=0)
    assert np.abs(other.latents[0].T - run.latents[0].numpy()).max() > 1e-2, "the adapter must matter"
    assert torch.isfinite(run.latents).all()
