"""What training draws from while the corpus still grows: shards become samples, then latents, then batches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from demo_voice.batches import BatchSettings, batch_loader
from demo_voice.corpus import Utterance, read_shard, shard_paths
from demo_voice.flow import Frames, TensorBatch
from demo_voice.latents import Latents, Samples, heard_frames
from demo_voice.layouts_catalog import Catalog, Speech, styled_text
from demo_voice.phones import PHONE_FRAME_SAMPLES, Phones
from demo_voice.schedule import Every
from demo_voice.train_spelling import Spelling
from demo_voice.vae import AudioVae

LOOK_INTERVAL_S = 20.0
FIRST_SHARD_TIMEOUT_S = 600.0


class TrainingData:
    """The utterances of a corpus folder on the training device, as far as they are there."""

    def __init__(self, corpus: Path, device: torch.device) -> None:
        self._corpus = corpus
        self._device = device
        self._seen: set[Path] = set()
        self._unencoded: list[Utterance] = []
        self._samples = Samples(device)
        self._look = Every(LOOK_INTERVAL_S)

    def wait(self) -> None:
        """Return once there is a first shard; raises TimeoutError when none comes."""
        deadline = time.monotonic() + FIRST_SHARD_TIMEOUT_S
        while not self._read_new():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._corpus}: no shard within {FIRST_SHARD_TIMEOUT_S:.0f} s")
            time.sleep(0.5)

    def _read_new(self) -> int:
        """Read the shards that have come since; returns how many there are in all."""
        for path in sorted(set(shard_paths(self._corpus)) - self._seen):
            utterances = read_shard(path)
            self._samples.add([utterance.pcm for utterance in utterances])
            self._unencoded += utterances
            self._seen.add(path)
        return len(self._seen)

    def clips(self, batch_size: int, num_samples: int, min_gain: float) -> Tensor:
        """Random crops for the AudioVAE. # [batch_size, num_samples]"""
        if self._look.due():
            self._read_new()
        return self._samples.clips(batch_size, num_samples, min_gain)

    def take_unencoded(self) -> list[Utterance]:
        """The utterances that came since the last call."""
        self._read_new()
        taken, self._unencoded = self._unencoded, []
        return taken


class SpeechData:
    """Latents of the corpus and endless batches of it."""

    def __init__(self, source: TrainingData, vae: AudioVae, spelling: Spelling, default_speaker: str) -> None:
        """Raises ValueError when no utterance of the default speaker has come yet."""
        self._source, self._spelling = source, spelling
        self._hop = vae.config.hop_length
        self._latents = Latents(vae)
        self._phones = torch.zeros(1, dtype=torch.uint8, device=self._latents.frames.device)  # frame 0 is silence
        self._catalog = Catalog(default_speaker)
        self._look = Every(LOOK_INTERVAL_S)
        self._grow()
        if not self._catalog.default:
            raise ValueError(f"the corpus has no utterance of the default speaker {default_speaker!r} at tempo 1")

    @property
    def frames(self) -> Frames:
        """All so far."""
        return Frames(self._latents.frames, self._phones)

    def _grow(self) -> bool:
        """Encode and spell what has come; whether anything had."""
        utterances = self._source.take_unencoded()
        if not utterances:
            return False
        firsts = self._latents.add([utterance.pcm for utterance in utterances])
        phones = np.concatenate([self._phones_of(utterance) for utterance in utterances])
        self._phones = torch.cat((self._phones, torch.from_numpy(phones).to(self._phones.device)))
        for utterance, first in zip(utterances, firsts, strict=True):
            self._catalog.add(self._speech(utterance, first))
        print(f"corpus: {len(self._catalog.speeches)} utterances, {len(self._phones)} frames", flush=True)
        return True

    def _phones_of(self, utterance: Utterance) -> Phones:
        """The phone in the middle of each latent's frame. # [frames]"""
        middles = np.arange(len(utterance.pcm) // self._hop) * self._hop + self._hop // 2
        return utterance.phones[middles // PHONE_FRAME_SAMPLES]

    def _speech(self, utterance: Utterance, first_frame: int) -> Speech:
        spaced = len(self._catalog.speeches) % 2 == 0
        styled = styled_text(utterance.style, utterance.text, spaced) if utterance.style else None
        return Speech(
            speaker=utterance.speaker,
            tempo=utterance.tempo,
            plain=self._spelling.encode(utterance.text),
            unspaced=self._spelling.encode_unspaced(utterance.text),
            styled=self._spelling.encode(styled) if styled else np.zeros(0, np.int64),
            first_frame=first_frame,
            num_frames=len(utterance.pcm) // self._hop,
            num_heard_frames=heard_frames(utterance.pcm, self._hop),
        )

    def batches(self, settings: BatchSettings, seed: int, num_workers: int, pin_memory: bool) -> Iterator[TensorBatch]:
        """Batches of what is there; when more has come, the processes that draw them start anew with it."""
        for generation in count():
            seeds = seed, generation
            loader = iter(batch_loader(self._catalog, self._spelling, settings, seeds, num_workers, pin_memory))
            yield next(loader)
            while not (self._look.due() and self._grow()):
                yield next(loader)
