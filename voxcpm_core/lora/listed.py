"""Registering at the start what the setting `loras` lists."""

from __future__ import annotations

from voxcpm_core.config.loras import ListedLora, listed_loras
from voxcpm_core.errors import ConfigError, ErrorCode, RequestError, shown
from voxcpm_core.handle import EngineHandle
from voxcpm_core.lora.registration import fetch, new_record, read_facts
from voxcpm_core.lora.store import LoraStore


def register_listed(engine: EngineHandle) -> None:
    """As `register_lora` would, one after the other; a name that is taken must have been given to the same files.

    Raises ConfigError naming the adapter that cannot be had, and why.
    """
    store = LoraStore(engine.config.lora_root)
    for listed in listed_loras(engine.config.loras):
        try:
            _register(store, engine, listed)
        except RequestError as error:
            raise ConfigError(f"loras: the adapter {shown(listed.name)} cannot be registered: {error}") from None


def _register(store: LoraStore, engine: EngineHandle, listed: ListedLora) -> None:
    try:
        store.add(new_record(store, engine, listed.name, listed.path, listed.uri, listed.sha256))
    except RequestError as error:  # also when another replica, which starts at the same time, was faster
        if error.code is not ErrorCode.ALREADY_EXISTS:
            raise
        _require_same(store, engine, listed)


def _require_same(store: LoraStore, engine: EngineHandle, listed: ListedLora) -> None:
    known = store.get(listed.name)
    path = listed.path
    if path is None:
        uri = str(listed.uri)
        # Without asking the hub, whose files are kept: a server starts when there is no network, too.
        path = known.path if uri == known.source else fetch(engine.config.lora_root, uri)
    if read_facts(engine, path, listed.sha256)[1].digest != known.digest:
        message = "the name is registered with other files; list another name, or unregister this one first"
        raise RequestError(ErrorCode.ALREADY_EXISTS, message)
