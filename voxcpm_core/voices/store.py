"""The voices of a folder, as it is at the moment: nothing is watched, so it may be shared over a network."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from voxcpm_core.errors import ErrorCode, RequestError, invalid_parameter, shown
from voxcpm_core.paths import as_path
from voxcpm_core.shared_folder import is_gone, refused
from voxcpm_core.voices import files
from voxcpm_core.voices.files import RECORD_FILE, DamagedVoice
from voxcpm_core.voices.voice import Voice, VoiceRecord

NUM_CACHED = 64
_MIB = 1 << 20


class VoiceStore:
    """Thread-safe; any number of stores, in any number of processes, may share a folder.

    What one changes the others see at their next call. A voice that somebody holds outlives its removal.
    """

    def __init__(self, folder: str, max_voices: int, max_mib: int) -> None:
        """`folder` is made with the first voice; "" is a store that has and takes none."""
        self._root = as_path(folder) if folder else None
        self._max_voices = max_voices
        self._max_mib = max_mib
        self._add_lock = threading.Lock()
        self._cache_lock = threading.Lock()
        self._cache: OrderedDict[str, tuple[bytes, Voice]] = OrderedDict()

    def require_folder(self) -> None:
        """Raise INVALID_PARAMETER where no voice can be kept."""
        if self._root is None:
            raise invalid_parameter("voices cannot be kept here: VOXCPM_VOICES is not set")

    def get(self, name: str) -> Voice:
        """Raises UNKNOWN_VOICE, and INTERNAL for one that cannot be read."""
        if self._root is None:
            raise _unknown(name)
        with _faults(name), files.opened_voice(self._root, name) as folder:
            if folder is None:
                self._forget(name)
                raise _unknown(name)
            data = folder.record()
            # By its record, which is read each time: other files can have the inode, size and time of old ones.
            voice = self._cached(name, data)
            if voice is None:
                voice = folder.voice(VoiceRecord.from_json(data))
                self._remember(name, data, voice)
            return voice

    def has(self, name: str) -> bool:
        """Whether the name is taken."""
        if self._root is None:
            return False
        with _faults(name), files.opened_voice(self._root, name) as folder:
            return folder is not None

    def add(self, voice: Voice) -> None:
        """Raises ALREADY_EXISTS, TOO_LARGE when the folder holds its limit, and INTERNAL when it cannot be written."""
        self.require_folder()
        assert self._root is not None
        name = voice.record.name
        with self._add_lock, _faults(name):
            self._check_room(self._root, voice)
            try:
                files.write_voice(self._root, voice)
            except FileExistsError:
                raise already_exists(name) from None

    def remove(self, name: str) -> None:
        """Raises UNKNOWN_VOICE, and INTERNAL when the folder cannot be written."""
        self._forget(name)
        with _faults(name):
            if self._root is None or not files.remove_voice(self._root, name):
                raise _unknown(name)

    def records(self) -> list[VoiceRecord]:
        """Of all voices, by name; one that cannot be read is left out."""
        found = []
        for folder in files.voice_folders(self._root) if self._root is not None else ():
            try:
                found.append(VoiceRecord.from_json((folder / RECORD_FILE).read_bytes()))
            except (OSError, ValueError):
                continue
        return sorted(found, key=lambda record: record.name)

    def _cached(self, name: str, data: bytes) -> Voice | None:
        with self._cache_lock:
            cached = self._cache.get(name)
            if cached is None or cached[0] != data:
                return None
            self._cache.move_to_end(name)
            return cached[1]

    def _remember(self, name: str, data: bytes, voice: Voice) -> None:
        with self._cache_lock:
            self._cache[name] = data, voice
            self._cache.move_to_end(name)
            if len(self._cache) > NUM_CACHED:
                self._cache.popitem(last=False)

    def _forget(self, name: str) -> None:
        with self._cache_lock:
            self._cache.pop(name, None)

    def _check_room(self, root: Path, voice: Voice) -> None:
        folders = files.voice_folders(root)
        if len(folders) >= self._max_voices:
            raise _full(f"max_voices, {self._max_voices}")
        new_bytes = sum(latents.nbytes for latents in (voice.prompt, voice.reference) if latents is not None)
        if new_bytes + sum(map(files.size_bytes, folders)) > self._max_mib * _MIB:
            raise _full(f"max_voices_mib, {self._max_mib}")


def already_exists(name: str) -> RequestError:
    """The error of a name that is taken."""
    return RequestError(ErrorCode.ALREADY_EXISTS, f"the voice {shown(name)} exists; remove it first")


def _unknown(name: str) -> RequestError:
    return RequestError(ErrorCode.UNKNOWN_VOICE, f"there is no voice {shown(name)}")


def _full(limit: str) -> RequestError:
    return RequestError(ErrorCode.TOO_LARGE, f"the folder of voices is full ({limit}): remove one first")


@contextmanager
def _faults(name: str) -> Iterator[None]:
    """What goes wrong with files as a RequestError, which names no path."""
    try:
        yield
    except OSError as error:
        raise (_unknown(name) if is_gone(error) else refused("voice", name, error)) from None
    except (DamagedVoice, ValueError):
        raise RequestError(ErrorCode.INTERNAL, f"the files of the voice {shown(name)} are damaged") from None
