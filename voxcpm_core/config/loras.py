"""The setting `loras`: adapters that are to be there from the start."""

from __future__ import annotations

import re
from dataclasses import dataclass

from voxcpm_core.errors import ConfigError, shown

_ENTRY = re.compile(r"(?P<name>[^=]+)=(?P<source>.+?)(@(?P<sha256>[0-9a-fA-F]{64}))?")
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
    listed = [_listed(entry) for entry in entries]
    names = [each.name for each in listed]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"loras: the name {shown(name)} is listed twice")
    return tuple(listed)


def _listed(entry: str) -> ListedLora:
    found = _ENTRY.fullmatch(entry)
    if found is None:
        raise ConfigError(f"loras: expected {_FORM}; got {shown(entry)}")
    source = found["source"].strip()
    is_uri = "://" in source
    return ListedLora(found["name"].strip(), None if is_uri else source, source if is_uri else None, found["sha256"])
