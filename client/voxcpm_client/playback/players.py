"""What can play 16-bit mono samples on this machine."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Protocol

from voxcpm_client.errors import NoPlayer
from voxcpm_client.playback.program import PROGRAMS, ProgramPlayer


class Player(Protocol):
    """One stream of sound. All methods but `stop` are called by one thread."""

    def write(self, samples: bytes) -> None:
        """Play 16-bit samples after those before; may block while much is waiting. Raises NoPlayer when it fails."""

    def drain(self) -> None:
        """Return when all was heard; nothing may be written then. Raises NoPlayer when it fails."""

    def stop(self) -> None:
        """Be silent at once and let a `write` that blocks return or raise; from any thread."""

    def close(self) -> None:
        """Give back what the player holds, after `drain` or `stop`."""


PlayerOpener = Callable[[int], Player]  # takes the sample rate in Hz


def find_player() -> PlayerOpener:
    """`sounddevice` where it and its PortAudio are installed, else the first player program on PATH.

    Raises NoPlayer, which says what to install.
    """
    try:
        from voxcpm_client.playback.device import DevicePlayer

        return DevicePlayer
    except (ImportError, OSError):  # OSError: PortAudio is missing
        pass
    for name, program in PROGRAMS.items():
        path = shutil.which(name)
        if path is not None:
            return lambda sample_rate: ProgramPlayer(path, program, sample_rate)
    raise NoPlayer(
        f"nothing here can play sound: install one of {', '.join(PROGRAMS)}, or pip install 'voxcpm-triton[play]' "
        "(on Linux with PortAudio, Debian: libportaudio2); or write a file with -o"
    )
