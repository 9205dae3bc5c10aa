"""`audiovae`: latents to samples, by the AudioVAE's decoder alone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxcpm_core.chain.kept import KeptStreams
from voxcpm_core.chain.step import Step, passed_on
from voxcpm_core.chain.upstream import Upstream
from voxcpm_core.checkpoint.checksums import verify_checksums
from voxcpm_core.checkpoint.load import load_config
from voxcpm_core.checkpoint.locate import locate
from voxcpm_core.config.settings import given_settings, model_parameters
from voxcpm_core.errors import ConfigError
from voxcpm_core.paths import as_path
from voxcpm_core.serving.responses import NamedTensor
from voxcpm_core.serving.tensors import InputTensors

if TYPE_CHECKING:
    from voxcpm_core.chain.decoding import LoadedDecoder, StreamDecoding

PASSED_ON = (
    "stream_id", "bitrate", "chunk_index", "sample_rate", "request_id", "is_last", "finish_reason", "seed",
)  # fmt: skip
READ_FILES = ("config.json", "audiovae.safetensors", "audiovae.pth")  # of a checkpoint, those that there are


@dataclass(frozen=True)
class VaeSettings:
    """Each is also `VOXCPM_<NAME>` in the environment, which wins."""

    model: str = ""  # the same as voxcpm's
    checksums: str = ""  # likewise; it must hold for the files that are read here
    preload: bool = False  # 0: the weights are read for the first stream


class VaePart:
    """One stream."""

    def __init__(self, decoding: StreamDecoding) -> None:
        self._decoding = decoding

    def take(self, tensors: InputTensors, is_last: bool) -> list[NamedTensor]:
        return [("pcm", self._decoding.decode(tensors.array("latents"))), *passed_on(tensors, *PASSED_ON)]


class VaeModel:
    """What Triton loads."""

    def __init__(self, settings: VaeSettings, device: str, pb_utils: Any) -> None:
        """Raises ConfigError or CheckpointError."""
        self._folder = locate(settings.model)
        self._checksums = as_path(settings.checksums).absolute() if settings.checksums else None
        self._verify()
        self._config = load_config(self._folder)
        self._device = device
        self._decoder: LoadedDecoder | None = None
        if settings.preload:
            self._loaded()
        self.streams = KeptStreams()
        self._upstream = Upstream(os.getppid(), self.streams)
        self.step = Step(pb_utils, self.streams, self._begin, self._upstream.leave)
        self.execute = self.step.execute

    def close(self) -> None:
        self._upstream.close()

    def _begin(self, tensors: InputTensors) -> VaePart:
        return VaePart(self._loaded().stream(tensors.array("vae_context")))

    def _verify(self) -> None:
        if self._checksums is not None:
            verify_checksums(self._folder, self._checksums, READ_FILES)

    def _loaded(self) -> LoadedDecoder:
        if self._decoder is None:
            self._verify()  # the files may have changed since the start
            from voxcpm_core.chain.decoding import LoadedDecoder

            self._decoder = LoadedDecoder(self._folder, self._config, self._device)
        return self._decoder


def start_audiovae(args: Mapping[str, str], pb_utils: Any, environ: Mapping[str, str]) -> VaeModel:
    """`args` are those of Triton's `initialize`, and say on which device. Raises ConfigError and CheckpointError."""
    settings = VaeSettings(**given_settings(VaeSettings, model_parameters(args["model_config"]), environ))
    if not settings.model:
        raise ConfigError("VOXCPM_MODEL is not set")
    is_gpu = args["model_instance_kind"] == "GPU"
    device = f"cuda:{args['model_instance_device_id']}" if is_gpu else "cpu"
    return VaeModel(settings, device, pb_utils)
