"""The setting `loras`: adapters that are to be there from the start."""

from __future__ import annotations

import re
from dataclasses import dataclass

from voxcpm_core.errors import ConfigError, shown

_ENTRY = re.compile(r"(?P<name>[^=]+)=(?P<source>.+?)(@(?P<sha256>[0-9a-fA-F]{64}))?")
_NO_REVISION = re.compile(r"sha256.*|[0-9a-f]{41,}", re.IGNORECASE)  # a commit has 40 digits
_FORM = "NAME=FOLDER or NAME=hf://OWNER/NAME, each perhaps with @SHA256, and commas between them"


@dataclass(frozen=True)
class ListedLora:
    """What `register_lora` is to be told: a path below lora_root or a uri, and perhaps the sum of the weights."""

    name: str
    path: str | None
    uri: str | None
    sha256: str | None


def listed_loras(text: str) -> tuple[ListedLora, ...]:
    """The entries of the setting; raises ConfigError for what is none, and for a name that comes twice."""
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    listed: dict[str, ListedLora] = {}
    for each in map(_listed, entries):
        if listed.setdefault(each.name, each) is not each:
            raise ConfigError(f"loras: the name {shown(each.name)} is listed twice")
    return tuple(listed.values())


def _listed(entry: str) -> ListedLora:
    found = _ENTRY.fullmatch(entry)
    if found is None:
        raise ConfigError(f"loras: expected {_FORM}; got {shown(entry)}")
    source = found["source"].strip()
    is_uri = "://" in source
    before, at, behind = source.rpartition("@")
    if at and not found["sha256"] and (not is_uri or "@" in before or _NO_REVISION.fullmatch(behind)):
        raise ConfigError(f"loras: expected 64 hexadecimal digits behind the last @, got {shown(behind)}")
    return ListedLora(found["name"].strip(), None if is_uri else source, source if is_uri else None, found["sha256"])
