"""From what somebody says of an adapter to its record: what is accepted can be used."""

from __future__ import annotations

import re

from voxcpm_core.errors import ErrorCode, RequestError, invalid_parameter, shown
from voxcpm_core.handle import EngineHandle
from voxcpm_core.lora.facts import LoraFacts, no_loras
from voxcpm_core.lora.folder import LoraFolder
from voxcpm_core.lora.hub import from_hub
from voxcpm_core.lora.packaged import SCHEME, from_package
from voxcpm_core.lora.store import LoraRecord, LoraStore, already_registered
from voxcpm_core.voices.voice import checked_name

_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


def new_record(
    store: LoraStore, engine: EngineHandle, name: object, path: str | None, uri: str | None, sha256: str | None
) -> LoraRecord:
    """The record of a new adapter, which the engine has read; it is not in the store yet.

    path: of its folder below lora_root; uri: "hf://owner/name" or "demo://name" instead, which is brought to there;
    sha256: what the file with the weights must have. Raises RequestError for a name that is taken and for what cannot
    be used.
    """
    root = engine.config.lora_root
    if not engine.config.num_lora_slots:
        raise no_loras()
    checked = checked_name(name)
    if store.has(checked):
        raise already_registered(checked)
    if (path is None) == (uri is None):
        raise RequestError(ErrorCode.CONFLICTING_INPUTS, "an adapter needs either a path or a uri")
    if sha256 is not None and not _SHA256.fullmatch(sha256):
        raise invalid_parameter(f"sha256: expected 64 hexadecimal digits, got {shown(sha256)}")
    found, facts = read_facts(engine, path if path is not None else fetch(root, str(uri)), sha256)
    return LoraRecord.make(checked, found, uri or found, facts)


def read_facts(engine: EngineHandle, path: str, sha256: str | None) -> tuple[str, LoraFacts]:
    """The path without links, and what the engine says of the adapter there; raises RequestError."""
    folder = LoraFolder(engine.config.lora_root, path)
    if sha256 is not None and folder.digests()[1] != sha256.lower():  # before anything in the file is looked at
        raise invalid_parameter(f"sha256: the weights have {folder.digests()[1]}")
    facts = engine.check_lora(folder.path).result()
    if sha256 is not None and facts.weights_sha256 != sha256.lower():
        raise invalid_parameter(f"sha256: the weights have {facts.weights_sha256}")
    return folder.path, facts


def fetch(root: str, uri: str) -> str:
    """Bring what a uri names to below `root`; returns its path there. Raises INVALID_PARAMETER."""
    return from_package(root, uri) if uri.startswith(SCHEME) else from_hub(root, uri)
