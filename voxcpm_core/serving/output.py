"""How the answer to one request is made: its rate, and the chunker of each attempt."""

from __future__ import annotations

from voxcpm_core.audio.encode import make_encoder
from voxcpm_core.audio.mp3 import mp3_bitrate
from voxcpm_core.audio.resample import StreamResampler, output_rate
from voxcpm_core.config.model import ModelConfig
from voxcpm_core.serving.chunker import Chunker
from voxcpm_core.serving.options import OutputOptions
from voxcpm_core.serving.responses import ChainInfo, StreamInfo
from voxcpm_core.types import FloatArray


class Output:
    """Raises INVALID_PARAMETER for a rate or bitrate that the format does not have."""

    def __init__(self, request_id: str, options: OutputOptions, model: ModelConfig) -> None:
        self._request_id = request_id
        self._options = options
        self._model_rate = model.vae.sample_rate
        self._patch_seconds = model.samples_per_patch / self._model_rate
        self._frame_s = self._patch_seconds / model.patch_size
        self._rate = output_rate(options.format, options.sample_rate, self._model_rate)
        self.chunker()
        self._chain: ChainInfo | None = None

    def chunker(self) -> Chunker:
        """A new one, for a stream from its first patch on."""
        options, rate = self._options, self._rate
        encoder = make_encoder(options.format, rate, options.stream, options.bitrate)
        resampler = StreamResampler(self._model_rate, rate) if rate != self._model_rate else None
        return Chunker(options, encoder if options.wants_audio else None, self._patch_seconds, resampler=resampler)

    def chain(self, stream_id: str, vae_context: FloatArray) -> None:
        """The responses go to further models, as ChainInfo says."""
        self._chain = ChainInfo(stream_id, mp3_bitrate(self._rate, self._options.bitrate), vae_context, self._frame_s)

    def info(self, seed: int) -> StreamInfo:
        """What the responses of an attempt repeat."""
        return StreamInfo(self._request_id, seed, self._rate, self._options, self._chain)
