"""One voice as a folder of two files, which is there whole or not at all, also for servers on other machines."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError
from safetensors.numpy import load, save

from voxcpm_core.shared_folder import file_name, is_gone, sweep, temporary_path
from voxcpm_core.types import FloatArray
from voxcpm_core.voices.voice import Voice, VoiceRecord, content_digest

RECORD_FILE, LATENTS_FILE = "voice.json", "latents.safetensors"


class DamagedVoice(Exception):
    """Files that are there and do not hold a voice."""


def write_voice(root: Path, voice: Voice) -> None:
    """Put a voice into `root`. Raises FileExistsError when its name is taken, and OSError as the file system does.

    A folder cannot be renamed onto one that has files, so of two servers that write the same name one is refused.
    """
    latents = {kind: getattr(voice, kind) for kind in ("prompt", "reference")}
    tensors = {kind: array for kind, array in latents.items() if array is not None}
    root.mkdir(parents=True, exist_ok=True)
    temporary = temporary_path(root)
    temporary.mkdir()
    try:
        sweep(root, temporary)
        _write(temporary / LATENTS_FILE, save(tensors))
        _write(temporary / RECORD_FILE, voice.record.to_json())
        _sync_folder(temporary)
        try:
            temporary.rename(root / file_name(voice.record.name))
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise FileExistsError(errno.EEXIST, "exists") from None
            raise
        _sync_folder(root)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_voice(root: Path, name: str) -> bool:
    """Remove a voice at once for everybody; False when there is none. Raises OSError as the file system does."""
    removed = temporary_path(root)
    try:
        (root / file_name(name)).rename(removed)
    except FileNotFoundError:
        return False
    shutil.rmtree(removed, ignore_errors=True)
    return True


class VoiceFolder:
    """The opened folder of one voice: what is read through it belongs together, also when it is removed meanwhile."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def record(self) -> bytes:
        return self._read(RECORD_FILE)

    def voice(self, record: VoiceRecord) -> Voice:
        """The voice with that record. Raises DamagedVoice when its latents are not those it was written with."""
        try:
            tensors = load(self._read(LATENTS_FILE))
        except SafetensorError:
            raise DamagedVoice from None
        latents = {kind: _frozen(tensors.get(kind)) for kind in ("prompt", "reference")}
        if content_digest(latents["prompt"], record.prompt_text, latents["reference"]) != record.digest:
            raise DamagedVoice
        return Voice(record, **latents)

    def _read(self, file: str) -> bytes:
        with open(os.open(file, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=self._descriptor), "rb") as opened:
            return opened.read()


@contextmanager
def opened_voice(root: Path, name: str) -> Iterator[VoiceFolder | None]:
    """The folder of a voice, None when there is none (any more). Raises OSError as the file system does.

    Each folder is opened, not only looked up: that makes a network file system ask its server what is there now.
    """
    with contextlib.ExitStack() as opened:
        try:
            descriptor = _open_folder(str(root), None)
            opened.callback(os.close, descriptor)
            descriptor = _open_folder(file_name(name), descriptor)
            opened.callback(os.close, descriptor)
        except OSError as error:
            if not is_gone(error):
                raise
            yield None
            return
        yield VoiceFolder(descriptor)


def voice_folders(root: Path) -> list[Path]:
    """The folders of all voices in `root`, in no order; none when there is no `root`."""
    try:
        return [Path(entry.path) for entry in os.scandir(root) if not entry.name.startswith(".") and entry.is_dir()]
    except FileNotFoundError:
        return []


def size_bytes(folder: Path) -> int:
    """Of a voice; 0 when it is gone."""
    try:
        return sum(entry.stat().st_size for entry in os.scandir(folder))
    except OSError as error:
        if is_gone(error):
            return 0
        raise


def _open_folder(path: str, parent: int | None) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY, dir_fd=parent)


def _frozen(array: FloatArray | None) -> FloatArray | None:
    if array is not None:
        array.setflags(write=False)
    return array


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not every network file system can
        descriptor = _open_folder(str(folder), None)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
