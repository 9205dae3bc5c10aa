"""The corpus in memory: each utterance gets the latents that it would have alone, in the order given."""

from __future__ import annotations

import numpy as np
import torch

from demo_voice import latents as latents_module
from demo_voice.latents import Latents, Samples, heard_frames
from demo_voice.model_sizes import voice_config
from demo_voice.vae import AudioVae
from tests.demo_voice.tone_voice import PATCH_SAMPLES, tone
from voxcpm_core.config import ModelConfig


def test_latents_are_those_of_each_utterance_alone(monkeypatch):
    monkeypatch.setattr(latents_module, "MAX_ENCODED_SAMPLES", 10 * PATCH_SAMPLES)  # several passes
    torch.manual_seed(0)
    vae = AudioVae(ModelConfig.from_json(voice_config("tiny", 512)).vae)
    utterances = [tone("", "", 100 + 40 * index, length).pcm for index, length in enumerate((3, 1, 5, 2, 4))]
    latents = Latents(vae)
    firsts = [*latents.add(utterances[:3]), *latents.add(utterances[3:])]
    assert firsts == [1, 13, 17, 37, 45]
    for first, pcm in zip(firsts, utterances, strict=True):
        with torch.no_grad():
            alone = vae.encode(torch.from_numpy(pcm / np.float32(32768)).unsqueeze(0))[0][0].T
        torch.testing.assert_close(latents.frames[first : first + len(alone)], alone, atol=1e-5, rtol=0)


def test_clips_are_cut_from_the_samples_and_made_quieter():
    samples = Samples(torch.device("cpu"))
    samples.add([np.full(600, 16384, np.int16), np.full(400, 16384, np.int16)])
    assert len(samples) == 1000
    loud, varied = samples.clips(64, 500, 1.0), samples.clips(64, 500, 0.4)
    assert torch.equal(loud, torch.full((64, 500), 0.5))
    assert 0.2 <= varied.min() < 0.25
    assert 0.45 < varied.max() <= 0.5


def test_filling_zeros_are_not_heard():
    pcm = np.zeros(2560, np.int16)
    assert heard_frames(pcm, 640) == 1
    pcm[639] = 1
    assert heard_frames(pcm, 640) == 1
    pcm[640] = -1
    assert heard_frames(pcm, 640) == 2
