"""The encoders of the output formats behind one protocol."""

from __future__ import annotations

from typing import Protocol

from voxcpm_core.audio.mp3 import Mp3Encoder
from voxcpm_core.audio.pcm import FloatPcmEncoder, PcmEncoder
from voxcpm_core.audio.wav import StreamingWavEncoder, WholeWavEncoder
from voxcpm_core.audio.whole import flac_encoder, opus_encoder
from voxcpm_core.errors import invalid_parameter, shown
from voxcpm_core.types import FloatArray

DEFAULT_FORMAT = "pcm_s16le"
STREAMED_FORMATS = (DEFAULT_FORMAT, "pcm_f32le", "wav", "mp3")
WHOLE_FORMATS = ("flac", "opus")  # only as one answer
FORMATS = STREAMED_FORMATS + WHOLE_FORMATS


class Encoder(Protocol):
    """One stream. The bytes of all calls, joined, are the encoded stream, however the samples are cut."""

    def encode(self, pcm: FloatArray) -> bytes:
        """Take [n] finite samples in [-1, 1]; returns what is ready, possibly nothing."""

    def finish(self) -> bytes:
        """The rest of the stream; nothing may be encoded afterwards."""


def make_encoder(format: str, sample_rate: int, streaming: bool, bitrate: int | None = None) -> Encoder:
    """An encoder for mono audio at `sample_rate` (Hz); `bitrate` in kbit/s.

    Not streaming, a format whose header holds the length gives everything in `finish`.
    Raises RequestError INVALID_PARAMETER for an unknown format and for a rate or bitrate that the format lacks.
    """
    if format not in FORMATS:
        raise invalid_parameter(f"format: expected one of {', '.join(FORMATS)}, got {shown(format)}")
    if streaming and format in WHOLE_FORMATS:
        raise invalid_parameter(f"format: {format} cannot be streamed; set stream to false")
    if format == "mp3":
        return Mp3Encoder(sample_rate, bitrate)
    if format == "opus":
        return opus_encoder(sample_rate, bitrate)
    if bitrate is not None:
        raise invalid_parameter(f"bitrate: {format} has none")
    if format == "wav":
        return StreamingWavEncoder(sample_rate) if streaming else WholeWavEncoder(sample_rate)
    if format == "flac":
        return flac_encoder(sample_rate)
    return PcmEncoder() if format == DEFAULT_FORMAT else FloatPcmEncoder()
