"""What the requests for the sentences of one passage have in common: voice, seed, request id."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from voxcpm_client.types import Chunk, FloatArray

_VOICE_OPTIONS = ("prompt_audio", "prompt_latents", "prompt_text", "reference_audio", "reference_latents", "voice")
_AUDIO_FILES = ("prompt_audio", "reference_audio")
_ANCHOR_S = 3.0  # of speech give a voice away; less may be one short word
_DRAWN_SEED_BOUND = 1 << 53  # as the server draws them
_SEED_STEP = 0x9E3779B97F4A7C15  # odd, so that no two sentences of a passage share a seed


@dataclass
class Heard:
    """What came of one sentence."""

    text: str
    latents: list[FloatArray] = field(default_factory=list)
    duration_s: float = 0.0

    def add(self, chunk: Chunk) -> None:
        self.duration_s += chunk.duration_s
        if chunk.latents is not None:
            self.latents.append(chunk.latents)


class PassagePlan:
    """Options of each sentence's request, asked for in order.

    The voice is the one that the options name. Where they name none, the first sentences give it: each continues all
    before it, as though they were one utterance, until three seconds are spoken; the rest continues those. (Continuing
    always the sentence before would let the voice drift.) So until then a request has to wait for the end of the one
    before it.
    """

    def __init__(self, options: Mapping[str, Any], request_id: str, audio_format: str) -> None:
        self._options = {name: value for name, value in options.items() if value is not None}
        for name in _AUDIO_FILES:
            if isinstance(self._options.get(name), (str, os.PathLike)):
                with open(self._options[name], "rb") as file:
                    self._options[name] = file.read()
        self._options["format"] = audio_format
        self.seed = self._options.setdefault("seed", secrets.randbelow(_DRAWN_SEED_BOUND))
        self._request_id = request_id
        self._num_requests = 0
        self._has_voice = any(name in self._options for name in _VOICE_OPTIONS)
        self._anchor_text = ""
        self._anchor_latents: list[FloatArray] = []
        self._anchor_s = 0.0
        self._lock = threading.Lock()

    @property
    def needs_all_before(self) -> bool:
        """Whether the next request takes its voice from the sentences before it, which have to be done then."""
        with self._lock:
            return not self._has_voice and self._num_requests > 0 and self._anchor_s < _ANCHOR_S

    def next_request(self) -> tuple[str, dict[str, Any]]:
        """The request id and the options of the next sentence."""
        with self._lock:
            number = self._num_requests
            self._num_requests += 1
            options = {**self._options, "seed": _sentence_seed(self.seed, number)}
            if not self._has_voice:
                if self._anchor_s < _ANCHOR_S:
                    options["return_latents"] = True
                if self._anchor_latents:
                    options["prompt_text"] = self._anchor_text
                    options["prompt_latents"] = np.concatenate(self._anchor_latents)
        return f"{self._request_id}-{number}" if self._request_id else "", options

    def learn(self, heard: Heard) -> None:
        """Take note of a sentence that is done: it may give its voice to what follows."""
        with self._lock:
            if heard.latents and not self._has_voice and self._anchor_s < _ANCHOR_S:
                self._anchor_text += heard.text
                self._anchor_latents += heard.latents
                self._anchor_s += heard.duration_s


def _sentence_seed(seed: int, number: int) -> int:
    """The seed of a sentence, a signed 64-bit integer; that of the first is the passage's own."""
    if number == 0:
        return seed
    mixed = (int(seed) + number * _SEED_STEP) % (1 << 64)
    return mixed - (1 << 64) if mixed >= 1 << 63 else mixed
