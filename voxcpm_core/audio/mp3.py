"""MP3 by LAME: mono, constant bitrate, the rate that was asked for.

The stream begins with `DELAY_SAMPLES` of encoder and decoder delay. No Info tag is written, so decoders do not trim
it: sample `DELAY_SAMPLES` of the decoded stream is the first sample.
"""

from __future__ import annotations

import lameenc

from voxcpm_core.audio.pcm import to_int16_bytes
from voxcpm_core.errors import invalid_parameter, shown
from voxcpm_core.types import FloatArray

DELAY_SAMPLES = 1105
DEFAULT_KBITS = 128
_QUALITY = 5
_MPEG1 = (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_MPEG2 = (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
_MPEG2_5 = (8, 16, 24, 32, 40, 48, 56, 64)
BITRATES = {  # Hz: kbit/s
    **dict.fromkeys((8_000, 11_025, 12_000), _MPEG2_5),
    **dict.fromkeys((16_000, 22_050, 24_000), _MPEG2),
    **dict.fromkeys((32_000, 44_100, 48_000), _MPEG1),
}


def samples_per_frame(sample_rate: int) -> int:
    return 1152 if sample_rate >= 32_000 else 576


def mp3_bitrate(sample_rate: int, bitrate: int | None) -> int:
    """The bitrate in kbit/s (None: the default, or the most that the rate allows); raises INVALID_PARAMETER."""
    allowed = BITRATES.get(sample_rate)
    if allowed is None:
        rates = ", ".join(map(str, BITRATES))
        raise invalid_parameter(f"mp3 has no sample rate of {shown(sample_rate)} Hz; it has {rates}")
    if bitrate is None:
        return min(DEFAULT_KBITS, allowed[-1])
    if bitrate not in allowed:
        wanted = ", ".join(map(str, allowed))
        raise invalid_parameter(f"bitrate: expected one of {wanted} at {sample_rate} Hz, got {shown(bitrate)}")
    return bitrate


class Mp3Encoder:
    """A streaming encoder; less than one frame of silence follows the last sample."""

    def __init__(self, sample_rate: int, bitrate: int | None = None) -> None:
        kbits = mp3_bitrate(sample_rate, bitrate)
        self._encoder = lameenc.Encoder()
        self._encoder.set_channels(1)
        self._encoder.set_in_sample_rate(sample_rate)
        self._encoder.set_out_sample_rate(sample_rate)  # else LAME lowers the rate at low bitrates
        self._encoder.set_bit_rate(kbits)
        self._encoder.set_quality(_QUALITY)
        self._encoder.silence()
        self._num_samples = 0
        self._samples_per_frame = samples_per_frame(sample_rate)
        self._frames = _FrameWalk(self._samples_per_frame // 8 * kbits * 1000 // sample_rate)

    def encode(self, pcm: FloatArray) -> bytes:
        self._num_samples += len(pcm)
        return self._walked(bytes(self._encoder.encode(to_int16_bytes(pcm))))

    def finish(self) -> bytes:
        if not self._num_samples:
            return b""
        data = self._walked(bytes(self._encoder.flush()))
        num_silent = self._frames.count * self._samples_per_frame - DELAY_SAMPLES - self._num_samples
        # LAME pads by up to 46 samples more than a frame; a frame that holds nothing but padding is left out.
        return data if num_silent < self._samples_per_frame else data[: -self._frames.last_frame_bytes]

    def _walked(self, data: bytes) -> bytes:
        self._frames.feed(data)
        return data


class _FrameWalk:
    """Counts the frames of a constant-bitrate stream by their headers' padding bits."""

    def __init__(self, frame_bytes: int) -> None:
        self.count = 0
        self.last_frame_bytes = 0
        self._frame_bytes = frame_bytes  # without padding
        self._to_header_byte_2 = 2  # from the start of what comes next

    def feed(self, data: bytes) -> None:
        position = self._to_header_byte_2
        while position < len(data):
            self.last_frame_bytes = self._frame_bytes + (data[position] >> 1 & 1)
            self.count += 1
            position += self.last_frame_bytes
        self._to_header_byte_2 = position - len(data)
