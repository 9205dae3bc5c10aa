"""The corpus on the training device: samples to crop the AudioVAE's clips from, and the latents it made of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from demo_voice.vae import AudioVae

Pcm = npt.NDArray[np.int16]

FULL_SCALE = 32768.0
MAX_ENCODED_SAMPLES = 1 << 23  # of one pass of the encoder


class Samples:
    """All speech so far in the device's memory, without a gap."""

    def __init__(self, device: torch.device) -> None:
        self._pcm = torch.zeros(0, dtype=torch.int16, device=device)

    def __len__(self) -> int:
        return len(self._pcm)

    def add(self, utterances: Sequence[Pcm]) -> None:
        self._pcm = torch.cat((self._pcm, torch.from_numpy(np.concatenate(utterances)).to(self._pcm.device)))

    def clips(self, batch_size: int, num_samples: int, min_gain: float) -> Tensor:
        """Random crops, each made quieter by a gain from `min_gain` to 1. # [batch_size, num_samples], in [-1, 1]"""
        device = self._pcm.device
        starts = torch.randint(len(self) - num_samples + 1, (batch_size, 1), device=device)
        crops = self._pcm[starts + torch.arange(num_samples, device=device)]
        gains = min_gain + (1.0 - min_gain) * torch.rand(batch_size, 1, device=device)
        return crops * (gains / FULL_SCALE)


class Latents:
    """The latents of all utterances, frame by frame; frame 0 is silence."""

    def __init__(self, vae: AudioVae) -> None:
        self._vae = vae
        self._device = next(vae.parameters()).device
        hop = vae.config.hop_length
        silence = self._encode(torch.zeros(1, 50 * hop, device=self._device))[0, -1:]
        self.frames = silence  # [frames, C]

    @torch.no_grad()
    def _encode(self, waveforms: Tensor) -> Tensor:
        return self._vae.encode(waveforms)[0].transpose(1, 2)  # [B, T, C]

    def add(self, utterances: Sequence[Pcm]) -> list[int]:
        """Encode utterances of whole frames; returns the number of each one's first frame."""
        hop = self._vae.config.hop_length
        encoded: dict[int, Tensor] = {}
        for numbers in _groups([len(pcm) for pcm in utterances]):
            # Nothing looks ahead, so what fills up the shorter ones behind their end does not change them.
            longest = max(len(utterances[number]) for number in numbers)
            padded = np.zeros((len(numbers), longest), np.int16)
            for row, number in enumerate(numbers):
                padded[row, : len(utterances[number])] = utterances[number]
            latents = self._encode(torch.from_numpy(padded).to(self._device) / FULL_SCALE)
            encoded |= {n: latents[row, : len(utterances[n]) // hop] for row, n in enumerate(numbers)}
        lengths = [len(encoded[number]) for number in range(len(utterances))]
        firsts = len(self.frames) + np.cumsum([0, *lengths[:-1]])
        self.frames = torch.cat((self.frames, *(encoded[number] for number in range(len(utterances)))))
        return firsts.tolist()


def _groups(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Numbers of utterances of like length whose padded samples fit into one pass."""
    group: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: lengths[number]):
        if group and (len(group) + 1) * lengths[number] > MAX_ENCODED_SAMPLES:
            yield group
            group = []
        group.append(number)
    yield group


def heard_frames(pcm: Pcm, hop: int) -> int:
    """Frames up to the last sample that is not zero, at least one."""
    heard = np.flatnonzero(pcm)
    return int(heard[-1]) // hop + 1 if len(heard) else 1
