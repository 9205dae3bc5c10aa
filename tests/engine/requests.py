"""A mixed crowd of requests, the same for every law test."""

import dataclasses

import numpy as np

from voxcpm_core.types import Condition, SamplingParams, SpeechRequest

WORDS = ["hello", "the", "world", "thin", "你好", "世界", "语音合成", "today", "今天天气", "Hello"]
NUM_VOICES = 3


def tone(num_samples: int, step: float = 0.05) -> Condition:
    return Condition(waveform=(0.3 * np.sin(np.arange(num_samples) * step)).astype(np.float32))


def short(request: SpeechRequest, max_length: int = 4, num_steps: int = 4) -> SpeechRequest:
    """The same for tests of what a few patches show, unheard."""
    params = dataclasses.replace(request.params, max_length=max_length, inference_timesteps=num_steps)
    return dataclasses.replace(request, params=params, wants_audio=False)


def crowd(count: int, reference: bool = True) -> list[SpeechRequest]:
    """Requests that differ in everything that a request can differ in."""
    rng = np.random.default_rng(7)
    requests = []
    for index in range(count):
        text = " ".join(rng.choice(WORDS, size=rng.integers(1, 6)))
        params = SamplingParams(
            cfg_value=float(rng.choice([1.0, 2.0, 3.0])),
            temperature=float(rng.choice([0.0, 0.7, 1.0])),
            inference_timesteps=int(rng.choice([4, 10])),
            min_length=int(rng.integers(0, 4)),
            max_length=int(rng.integers(1, 12)),
            seed=int(rng.integers(0, 2**53)),
        )
        with_prompt, with_reference = index % 3 == 1, reference and index % 4 == 2
        requests.append(
            SpeechRequest(
                target_text=text,
                prompt_text="hello" if with_prompt else "",
                prompt=tone(137 * index) if with_prompt else None,
                reference=tone(211 * index, 0.11) if with_reference else None,
                params=params,
                wants_audio=index % 5 != 4,
            )
        )
    return requests


def voice(index: int, num_patches: int, samples_per_patch: int):
    return tone(num_patches * samples_per_patch - index, 0.05 + 0.02 * index)


def voiced_crowd(samples_per_patch: int, count: int) -> list[SpeechRequest]:
    """Three voices of 6, 14 and 22 positions, some with a prompt of one patch or several, and requests without any.

    Of a model with references, whose encoder takes so many samples for a patch.
    """
    rng = np.random.default_rng(11)
    requests = []
    for index in range(count):
        number = index % (NUM_VOICES + 1)
        params = SamplingParams(
            seed=index, inference_timesteps=2, min_length=int(rng.integers(0, 3)), max_length=int(rng.integers(1, 5))
        )
        prompt = voice(9, int(rng.choice([1, 5])), samples_per_patch) if index % 3 == 2 else None
        requests.append(
            SpeechRequest(
                target_text=" ".join(rng.choice(WORDS, size=rng.integers(1, 9))),
                prompt_text="hello" if prompt else "",
                prompt=prompt,
                reference=voice(number, 4 + 8 * number, samples_per_patch) if number < NUM_VOICES else None,
                params=params,
            )
        )
    return requests
