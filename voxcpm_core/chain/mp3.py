"""`mp3_encoder`: samples to MP3."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from voxcpm_core.audio.mp3 import Mp3Encoder
from voxcpm_core.chain.kept import KeptStreams
from voxcpm_core.chain.step import Step, passed_on
from voxcpm_core.chain.upstream import Upstream
from voxcpm_core.serving.responses import NamedTensor
from voxcpm_core.serving.tensors import InputTensors

PASSED_ON = ("sample_rate", "request_id", "is_last", "finish_reason", "seed")


class Mp3Part:
    """Chunks are numbered anew: one of which the encoder has kept everything is not sent."""

    def __init__(self, tensors: InputTensors) -> None:
        self._encoder = Mp3Encoder(int(tensors.array("sample_rate")[0]), int(tensors.array("bitrate")[0]))
        self._num_chunks = 0
        self._num_samples = 0

    def take(self, tensors: InputTensors, is_last: bool) -> list[NamedTensor] | None:
        pcm = tensors.array("pcm")
        self._num_samples += len(pcm)
        audio = self._encoder.encode(pcm)
        if is_last:
            audio += self._encoder.finish()
        elif not audio:
            return None
        outputs: list[NamedTensor] = [
            ("audio", np.array([audio], dtype=np.object_)),
            ("chunk_index", np.array([self._num_chunks], np.int32)),
            ("num_samples", np.array([self._num_samples], np.int32)),
            *passed_on(tensors, *PASSED_ON),
        ]
        self._num_chunks += 1
        self._num_samples = 0
        return outputs


class Mp3Model:
    """What Triton loads."""

    def __init__(self, pb_utils: Any) -> None:
        self.streams = KeptStreams()
        self._upstream = Upstream(os.getppid(), self.streams)
        self.step = Step(pb_utils, self.streams, Mp3Part, self._upstream.leave, self._upstream.taken)
        self.execute = self.step.execute

    def close(self) -> None:
        self._upstream.close()


def start_mp3_encoder(args: Mapping[str, str], pb_utils: Any, environ: Mapping[str, str]) -> Mp3Model:
    """As Triton's `initialize`; it has no settings."""
    return Mp3Model(pb_utils)
