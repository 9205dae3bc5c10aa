"""A checkpoint's files against a list that its operator keeps, as `sha256sum` writes it."""

from __future__ import annotations

import errno
import hashlib
import re
import stat
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

from voxcpm_core.errors import CheckpointError, ConfigError, shown

WEIGHTS = (".safetensors", ".bin", ".pth", ".ckpt", ".pt")  # suffixes of what must be on the list
_LINE = re.compile(r"(?P<digest>[0-9a-fA-F]{64}) [ *](\./)?(?P<name>[^/\\\0]+)")
_READ_BYTES = 1 << 20
_LONGEST_LIST_BYTES = 1 << 20  # thousands of files


def verify_checksums(folder: Path, listing: Path, only: Collection[str] | None = None) -> None:
    """Every file on the list must be in the folder and be what the list says, and all weights must be on it.

    `only`: names of the files that matter to who reads no others; None: all of the folder do.
    Raises ConfigError where the list cannot be read, CheckpointError naming the file that is to blame.
    """
    listed = {name: digest for name, digest in _read(listing).items() if only is None or name in only}
    for path in sorted(folder.iterdir()):
        if path.suffix in WEIGHTS and path.name not in listed and (only is None or path.name in only):
            raise CheckpointError(f"{path}: is not on the list of checksums, {listing}")
    with ThreadPoolExecutor() as pool:  # hashing does not hold the interpreter
        found = dict(zip(listed, pool.map(_sha256, (folder / name for name in listed)), strict=True))
    for name, digest in listed.items():
        if found[name] != digest:
            raise CheckpointError(f"{folder / name}: its SHA-256 is {found[name]}, and {digest} in {listing}")


def _read(listing: Path) -> dict[str, str]:
    """Digest by name."""
    try:
        with _opened(listing) as file:
            data = file.read(_LONGEST_LIST_BYTES + 1)
        lines = data.decode().splitlines()
    except (OSError, ValueError) as error:
        raise ConfigError(f"checksums: {listing} cannot be read: {_reason(error)}") from None
    if len(data) > _LONGEST_LIST_BYTES:
        raise ConfigError(f"checksums: {listing} is longer than {_LONGEST_LIST_BYTES} bytes: not a checkpoint's list")
    listed: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line or line.startswith("#"):
            continue
        where = f"checksums: {listing}, line {number}"
        found = _LINE.fullmatch(line)
        if found is None:
            raise ConfigError(f"{where}: expected 64 hexadecimal digits and the name of a file in the model's folder")
        digest = found["digest"].lower()
        if listed.setdefault(found["name"], digest) != digest:
            raise ConfigError(f"{where}: {shown(found['name'])} has another digest further up")
    if not listed:
        raise ConfigError(f"checksums: {listing} lists nothing")
    return listed


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with _opened(path) as file:
            while chunk := file.read(_READ_BYTES):
                digest.update(chunk)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: is on the list of checksums and cannot be read ({_reason(error)})") from None
    return digest.hexdigest()


def _opened(path: Path) -> BinaryIO:
    """Only a file that has an end: a pipe or a device would hold up the start for ever. Raises OSError, ValueError."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    return path.open("rb")


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
