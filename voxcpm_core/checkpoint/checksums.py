"""A checkpoint's files against a list that its operator keeps, as `sha256sum` writes it."""

from __future__ import annotations

import hashlib
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from voxcpm_core.errors import CheckpointError, ConfigError

WEIGHTS = (".safetensors", ".bin", ".pth", ".ckpt", ".pt")  # suffixes of what must be on the list
_LINE = re.compile(r"(?P<digest>[0-9a-fA-F]{64}) [ *](\./)?(?P<name>[^/\\]+)")
_READ_BYTES = 1 << 20


def verify_checksums(folder: Path, listing: Path) -> None:
    """Every file on the list must be in the folder and be what the list says, and all weights must be on it.

    Raises ConfigError where the list cannot be read, CheckpointError naming the file that is to blame.
    """
    listed = _read(listing)
    for path in sorted(folder.iterdir()):
        if path.suffix in WEIGHTS and path.name not in listed:
            raise CheckpointError(f"{path}: is not on the list of checksums, {listing}")
    with ThreadPoolExecutor() as pool:  # hashing does not hold the interpreter
        found = dict(zip(listed, pool.map(_sha256, (folder / name for name in listed)), strict=True))
    for name, digest in listed.items():
        if found[name] != digest:
            raise CheckpointError(f"{folder / name}: its SHA-256 is {found[name]}, and {digest} in {listing}")


def _read(listing: Path) -> dict[str, str]:
    """Digest by name."""
    try:
        lines = listing.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise ConfigError(f"checksums: {listing} cannot be read: {error}") from None
    listed = {}
    for number, line in enumerate(lines, start=1):
        if not line or line.startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise ConfigError(f"checksums: {listing}, line {number}: expected 64 hexadecimal digits and a file's name")
        listed[found["name"]] = found["digest"].lower()
    if not listed:
        raise ConfigError(f"checksums: {listing} lists nothing")
    return listed


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_READ_BYTES):
                digest.update(chunk)
    except OSError as error:
        raise CheckpointError(f"{path}: is on the list of checksums and cannot be read ({error.strerror})") from None
    return digest.hexdigest()
