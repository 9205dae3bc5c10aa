"""The nouns shared by the engine, the Triton adapter and the Python API. No torch here."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from voxcpm_core.errors import RequestError

FloatArray = npt.NDArray[np.float32]
PadSide = Literal["left", "right"]
PAD_SIDES: dict[str, PadSide] = {"prompt": "left", "reference": "right"}  # where audio is filled up to a whole patch


class FinishReason(str, Enum):
    """Why a stream ended: the model's stop head, or a length limit."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True)
class Condition:
    """Audio that conditions a request: a waveform still to be encoded, or latents. Exactly one is set."""

    waveform: FloatArray | None = None  # [samples], mono, at the VAE encoder's rate
    latents: FloatArray | None = None  # [frames, feat_dim], frames a multiple of patch_size

    def num_patches(self, frames_per_patch: int, samples_per_patch: int) -> int:
        """Patches it occupies in the prefill; a waveform is padded up to a whole patch."""
        if self.latents is not None:
            return int(self.latents.shape[0]) // frames_per_patch
        assert self.waveform is not None
        return -(-int(self.waveform.shape[0]) // samples_per_patch)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what it holds, equal for equal audio of one kind. A minute of audio takes milliseconds."""
        kind, values = ("waveform", self.waveform) if self.latents is None else ("latents", self.latents)
        assert values is not None
        digest = hashlib.sha256(f"{kind} {values.shape};".encode())
        digest.update(np.ascontiguousarray(values, np.float32).data)
        return digest.hexdigest()


@dataclass(frozen=True)
class SamplingParams:
    """Generation parameters as a caller gives them; lengths are in patches."""

    cfg_value: float = 2.0
    temperature: float = 1.0
    inference_timesteps: int = 10
    min_length: int = 2
    max_length: int | None = None  # None: as long as the cache allows
    length_cap: bool = True  # end at 6 * text tokens + 10 patches, as the official package does
    ignore_stop: bool = False
    seed: int | None = None  # None: one is drawn


@dataclass(frozen=True)
class LoraRef:
    """A registered adapter, as it was when a request named it."""

    name: str
    path: str  # of its folder, below the folder of all adapters
    digest: str  # of its files: what is registered anew under the same name has another


@dataclass(frozen=True)
class SpeechRequest:
    """What a caller asks for, before validation against a model."""

    target_text: str
    request_id: str = ""
    prompt_text: str = ""
    prompt: Condition | None = None
    reference: Condition | None = None
    params: SamplingParams = field(default_factory=SamplingParams)
    wants_audio: bool = True  # False: latents only, the VAE decoder is not run
    lora: LoraRef | None = None


@dataclass(frozen=True)
class EngineRequest:
    """A validated request in the engine's terms: token ids, patch counts and fully resolved limits."""

    request_id: str
    token_ids: tuple[int, ...]  # prompt text and target text, then the audio-start marker
    prompt: Condition | None
    reference: Condition | None
    num_prefill: int  # LM positions of the prefill
    max_patches: int  # the stream ends with this patch at the latest
    min_length: int  # the stop head is ignored for patch indices up to and including this one
    ignore_stop: bool
    cfg_value: float
    temperature: float
    inference_timesteps: int
    seed: int
    wants_audio: bool
    lora: LoraRef | None = None
    num_voice_positions: int = 0  # of the prefill, the first ones, which follow from the reference alone

    @property
    def num_positions(self) -> int:
        """KV positions reserved for the whole request."""
        return self.num_prefill + self.max_patches

    @property
    def conditions(self) -> dict[PadSide, Condition]:
        """Its audio, by the side that is filled up."""
        given = {"reference": self.reference, "prompt": self.prompt}
        return {PAD_SIDES[role]: each for role, each in given.items() if each is not None}

    def digest_audio(self) -> list[str]:
        """The digests of its reference and prompt, which are computed once: call it where nobody waits."""
        return [each.digest for each in self.conditions.values()]


@dataclass(frozen=True)
class Admitted:
    """The request left the waiting queue and owns a slot."""


@dataclass(slots=True)  # not frozen: that would triple the time to make one, and each step makes one a stream
class Patch:
    """One generated patch. `finish_reason` is set on the last patch of a stream only.

    The arrays may lie in memory that the engine uses again once they are gone: copy what is kept for long.
    """

    index: int
    latents: FloatArray  # [patch_size, feat_dim]
    audio: FloatArray | None  # [samples_per_patch], in [-1, 1]; None when audio was not asked for
    finish_reason: FinishReason | None = None


@dataclass(frozen=True)
class Failed:
    """The stream ended with an error (also when it was cancelled); nothing follows."""

    error: RequestError


StreamEvent = Admitted | Patch | Failed
EventSink = Callable[[StreamEvent], None]


@dataclass(frozen=True)
class StepOutput:
    """The patches of one engine step: of B rows that were made, the N that somebody waits for."""

    stream_ids: list[int]  # [N]
    indices: list[int]  # [N] of the patches
    reasons: list[FinishReason | None]  # [N] set for streams that end with this patch
    latents_rows: list[int]  # [N] rows of `latents`
    audio_rows: list[int | None]  # [N] rows of `audio`; None where audio was not asked for
    latents: FloatArray  # [B, patch_size, feat_dim]
    audio: FloatArray  # [B, samples_per_patch], in [-1, 1]; [0, samples_per_patch] when nobody asked for any


EngineEvent = StepOutput | tuple[int, Admitted | Failed]  # the int is the stream's id


class EngineStats(NamedTuple):
    """Counters of one engine at one moment."""

    running: int
    waiting: int
    max_running: int
    pages_used: int
    pages_total: int
    num_steps: int
    num_dit_calls: int
    num_prefills: int
    num_patches: int = 0  # planned, over all streams
    num_encodings: int = 0  # runs of the VAE encoder
    num_voice_hits: int = 0  # prompts and references of newcomers that were known from before
    num_voice_misses: int = 0  # and those that were not
    num_prefill_positions: int = 0  # run by prefills
    num_shared_positions: int = 0  # that prefills had no need to run
    pages_kept: int = 0  # of references, that no stream uses; given up when one needs them
    voice_cache_bytes: int = 0  # latents and embeddings kept of prompts and references
    collected_ns: int = 0  # CLOCK_MONOTONIC, when the latest step's outputs were on the host
    busy_ns: int = 0  # wall time from the launch of a step to its end, counted once where two are under way
    num_restarts: int = 0  # of the worker process
    worker_pid: int = 0  # 0: the engine runs in this process, or is being started again
