"""The model against the official package, patch by patch: free-running in fp32, teacher-forced in bf16."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cosine_similarity

from tests.model.rollout import load_model, roll_out
from tests.oracle.model import OfficialModel
from voxcpm_core.checkpoint.random_init import make_checkpoint

TEXT = "Hello world 你好世界, this is a test."


def conditions(official: OfficialModel, num_samples: int) -> list[dict]:
    wave = (0.3 * np.sin(np.arange(num_samples) * 0.05)).astype(np.float32)
    prompt = {"prompt_wav": wave, "prompt_text": "hello the world"}
    if official.model.__class__.__name__ != "VoxCPM2Model":
        return [{}, prompt]
    return [{}, prompt, {"reference_wav": wave}, prompt | {"reference_wav": wave[: num_samples // 2]}]


@pytest.mark.parametrize("generation", ["0.5", "1.5", "2"])
def test_fp32_rollout_equals_the_official_one(generation, official_models, tiny_checkpoints):
    official = official_models[generation]
    model = load_model(tiny_checkpoints[generation], torch.float32)
    for kwargs in conditions(official, 517):
        run = official.generate(TEXT, steps=5, cfg=2.0, max_len=8, seed=3, **kwargs)
        ours = roll_out(model, run, num_steps=5, cfg=2.0, teacher_forced=False)
        torch.testing.assert_close(ours.latents, run.latents, atol=1e-4, rtol=0)
        torch.testing.assert_close(ours.mu, run.mu, atol=1e-4, rtol=0)
        torch.testing.assert_close(ours.stop_logits, run.stop_logits, atol=1e-4, rtol=0)


@pytest.mark.parametrize("generation", ["0.5", "1.5", "2"])
def test_bf16_teacher_forced_patches_equal_the_official_ones(generation, tmp_path):
    make_checkpoint(tmp_path / "m", size="tiny", generation=generation, seed=0, dtype="bfloat16")
    official, model = OfficialModel(tmp_path / "m"), load_model(tmp_path / "m", torch.bfloat16)
    for kwargs in conditions(official, 517):
        run = official.generate(TEXT, steps=10, cfg=1.7, max_len=12, seed=3, **kwargs)
        patches = torch.cat([solve_one(model, run, i, 10, 1.7) for i in range(len(run.noise))])
        # Two units in the last place at 4: processors sum bf16 in different orders.
        torch.testing.assert_close(patches, run.latents, atol=2**-4, rtol=0)
        assert cosine_similarity(patches.flatten(1), run.latents.flatten(1)).min() > 0.9999
        # mu is compared by itself: where rounding moves a code of the quantiser by one, it jumps visibly.
        ours = roll_out(model, run, num_steps=10, cfg=1.7, teacher_forced=True)
        assert cosine_similarity(ours.mu, run.mu).min() > 0.999
        margin = (run.stop_logits[:, 1] - run.stop_logits[:, 0]).abs()
        decided = margin > 0.1
        assert torch.equal(ours.stop_logits.argmax(-1)[decided], run.stop_logits.argmax(-1)[decided])
        assert decided.any()


@torch.inference_mode()
def solve_one(model, run, index, num_steps, cfg):
    at = slice(index, index + 1)
    noise = run.noise[at].transpose(1, 2).contiguous().to(model.dtype)
    cond = run.cond[at].transpose(1, 2).contiguous().to(model.dtype)
    patch = model.dit.solve(noise, run.mu[at].to(model.dtype), cond, torch.tensor([cfg]), num_steps)
    return patch.transpose(1, 2).float()
