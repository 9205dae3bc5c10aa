"""The machine's default output device."""

from __future__ import annotations

import sounddevice

from voxcpm_client.errors import NoPlayer

_BLOCK_S = 0.05  # how long it may sound on after a stop


class DevicePlayer:
    """A `Player` on the default output device. Raises NoPlayer where there is none."""

    def __init__(self, sample_rate: int) -> None:
        self._is_stopped = False
        self._block_bytes = 2 * round(_BLOCK_S * sample_rate)
        try:
            self._stream = sounddevice.RawOutputStream(samplerate=sample_rate, channels=1, dtype="int16")
            self._stream.start()
        except sounddevice.PortAudioError as error:
            raise NoPlayer(f"no output device can be opened: {error}; write a file with -o") from None

    def write(self, samples: bytes) -> None:
        try:
            for start in range(0, len(samples), self._block_bytes):
                if self._is_stopped:
                    return
                self._stream.write(samples[start : start + self._block_bytes])
        except sounddevice.PortAudioError as error:
            raise NoPlayer(f"the output device failed: {error}") from None

    def drain(self) -> None:
        self._stream.stop()  # PortAudio plays what is in its buffer first

    def stop(self) -> None:
        self._is_stopped = True  # PortAudio must not be called by a second thread

    def close(self) -> None:
        self._stream.abort()
        self._stream.close()
