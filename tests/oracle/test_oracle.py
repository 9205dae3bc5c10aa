"""The oracle records what the official package does, and leaves no trace."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.oracle.fixtures import GENERATIONS
from tests.oracle.model import FloatArray, OfficialModel
from voxcpm_core.checkpoint.random_init import make_checkpoint

TEXT = "Hello world"
PROMPT_PATCHES = 3


@pytest.fixture(params=GENERATIONS)
def official(request: pytest.FixtureRequest, official_models: dict[str, OfficialModel]) -> OfficialModel:
    return official_models[request.param]


def waveform_of(official: OfficialModel) -> FloatArray:
    samples = PROMPT_PATCHES * official.model.patch_size * official.model.chunk_size - 5
    return (0.2 * np.random.default_rng(9).standard_normal(samples)).astype(np.float32)


def test_zero_shot_run_is_recorded(official: OfficialModel) -> None:
    run = official.generate(TEXT, max_len=5, min_len=8, seed=1)
    patch, feat = official.model.patch_size, official.model.feat_dim
    for tensor in (run.noise, run.cond, run.latents):
        assert tensor.shape == (5, feat, patch)
    assert run.mu.shape[0] == 5
    assert run.stop_logits.shape == (5, 2)
    expected_audio = official.vae_decode(run.latents.permute(1, 0, 2).reshape(1, feat, 5 * patch))[0]
    torch.testing.assert_close(torch.from_numpy(run.audio), expected_audio, atol=1e-6, rtol=0)
    assert run.token_ids == official.tokenize(TEXT)
    assert run.prefill_ids.tolist() == [*run.token_ids, 101]
    assert torch.equal(run.cond[0], torch.zeros(feat, patch))
    torch.testing.assert_close(run.cond[1:], run.latents[:-1], atol=0, rtol=0)


def test_noise_is_that_of_the_seed_and_can_be_replayed(official: OfficialModel) -> None:
    run = official.generate(TEXT, max_len=4, steps=3, seed=2)
    expected = torch.randn(run.noise.shape, generator=torch.Generator().manual_seed(2))
    again = official.generate(TEXT, max_len=4, steps=3, seed=77, noise=run.noise)
    other = official.generate(TEXT, max_len=4, steps=3, seed=77)
    torch.testing.assert_close(run.noise[0], expected[0], atol=0, rtol=0)
    assert torch.equal(again.latents, run.latents)
    assert not torch.equal(other.latents, run.latents)


def test_one_step_gives_the_noise_itself(official: OfficialModel) -> None:
    run = official.generate(TEXT, max_len=4, steps=1)
    assert torch.equal(run.latents, run.noise)


def test_continuation_ends_its_prefill_with_the_prompt(official: OfficialModel) -> None:
    waveform = waveform_of(official)
    run = official.generate(TEXT, waveform, "in the", max_len=4)
    latents = official.prompt_latents(waveform)
    assert latents.shape[0] == PROMPT_PATCHES
    assert run.token_ids == official.tokenize("in the" + TEXT)
    assert run.audio_mask.tolist() == [0] * (len(run.token_ids) + 1) + [1] * PROMPT_PATCHES
    torch.testing.assert_close(run.prefill_features[-PROMPT_PATCHES:], latents, atol=0, rtol=0)
    torch.testing.assert_close(run.cond[0], latents[-1].T, atol=0, rtol=0)


def test_reference_stands_before_the_text(official_models: dict[str, OfficialModel]) -> None:
    official = official_models["2"]
    waveform = waveform_of(official)
    run = official.generate(TEXT, waveform, "in the", waveform, max_len=4)
    length = PROMPT_PATCHES
    assert run.token_ids == official.tokenize("in the" + TEXT)
    assert run.prefill_ids.tolist() == [103] + [0] * length + [104, *run.token_ids, 101] + [0] * length
    torch.testing.assert_close(
        run.prefill_features[1 : 1 + length], official.reference_latents(waveform), atol=0, rtol=0
    )


def test_bfloat16_checkpoint(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, size="tiny", generation="2", dtype="bfloat16")
    official = OfficialModel(tmp_path)
    run = official.generate(TEXT, max_len=4)
    assert official.model.base_lm.norm.weight.dtype == torch.bfloat16
    assert run.latents.dtype == torch.float32
    assert torch.equal(run.latents, run.latents.bfloat16().float())


@pytest.mark.parametrize("generation", GENERATIONS)
def test_lora_is_applied(
    generation: str, tiny_checkpoints: dict[str, Path], official_models: dict[str, OfficialModel], tmp_path: Path
) -> None:
    target = official_models[generation].model.enc_to_lm_proj
    generator = torch.Generator().manual_seed(10)
    lora_a = torch.randn(3, target.in_features, generator=generator)
    lora_b = torch.randn(target.out_features, 3, generator=generator)
    save_file({"enc_to_lm_proj.lora_A": lora_a, "enc_to_lm_proj.lora_B": lora_b}, tmp_path / "lora_weights.safetensors")
    settings = {"lora_config": {"enable_proj": True, "r": 3, "alpha": 6}}
    (tmp_path / "lora_config.json").write_text(json.dumps(settings))
    adapted = OfficialModel(tiny_checkpoints[generation], lora=tmp_path)
    x = torch.randn(2, target.in_features, generator=generator)
    with torch.no_grad():
        expected = target(x) + 2 * x @ lora_a.T @ lora_b.T
        torch.testing.assert_close(adapted.model.enc_to_lm_proj(x), expected, atol=1e-4, rtol=0)
    noise = torch.zeros(4, adapted.model.feat_dim, adapted.model.patch_size)
    runs = [model.generate(TEXT, max_len=4, noise=noise) for model in (official_models[generation], adapted)]
    assert not torch.allclose(runs[0].latents[-1], runs[1].latents[-1], atol=1e-3)


def test_nothing_is_left_behind(official: OfficialModel, capfd: pytest.CaptureFixture[str]) -> None:
    randn, random_state = torch.randn, torch.get_rng_state()
    decoder = official.model.feat_decoder
    official.generate(TEXT, max_len=4)
    assert torch.randn is randn
    assert torch.equal(torch.get_rng_state(), random_state)
    assert not decoder._forward_hooks
    assert not decoder._forward_pre_hooks
    assert "_inference" not in vars(official.model)
    for name in {"torchaudio", "librosa"} & set(sys.modules):
        assert sys.modules[name].__file__, f"the stand-in for {name} is still there"
    assert capfd.readouterr() == ("", "")
