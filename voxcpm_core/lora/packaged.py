"""The example adapters that the package has, copied into the folder of all adapters."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

from voxcpm_core.errors import invalid_parameter, shown
from voxcpm_core.lora.folder import CONFIG_FILE, WEIGHT_FILES
from voxcpm_core.paths import as_path
from voxcpm_core.shared_folder import sweep, temporary_path

SCHEME = "demo://"
EXAMPLES = Path(__file__).resolve().parents[1] / "data" / "adapters"
FOLDER = ".packaged"  # in the folder of adapters
_URI = re.compile(re.escape(SCHEME) + r"(?P<name>\w+)")


def from_package(root: str, uri: str) -> str:
    """Copy "demo://giant" unless it is there; returns the path of its folder below `root`.

    Other weights, of a later release, have another folder. Raises INVALID_PARAMETER.
    """
    found = _URI.fullmatch(uri)
    if found is None or not (EXAMPLES / found["name"]).is_dir():
        known = ", ".join(sorted(SCHEME + folder.name for folder in EXAMPLES.iterdir()))
        raise invalid_parameter(f"uri: the package has {known}, not {shown(uri)}")
    source = EXAMPLES / found["name"]
    digest = hashlib.sha256((source / WEIGHT_FILES[0]).read_bytes()).hexdigest()[:16]
    path = f"{FOLDER}/{found['name']}--{digest}"
    try:
        _copy(source, as_path(root) / path)
    except OSError as error:
        raise invalid_parameter(f"uri: {shown(uri)} cannot be copied into lora_root: {error.strerror}") from None
    return path


def _copy(source: Path, target: Path) -> None:
    """Whole or not at all; several servers may do it at once."""
    if target.is_dir():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = temporary_path(target.parent)
    partial.mkdir()
    try:
        sweep(target.parent, partial)
        for name in (CONFIG_FILE, WEIGHT_FILES[0]):
            shutil.copyfile(source / name, partial / name)
        try:
            partial.rename(target)
        except OSError:
            if not target.is_dir():  # else another was faster
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
