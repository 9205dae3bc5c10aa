"""The adapters that a pool's requests may name: its own, and those that its `lora_root` has registered."""

from __future__ import annotations

import os
import threading

from voxcpm_core.config import EngineConfig
from voxcpm_core.errors import invalid_parameter, shown
from voxcpm_core.handle import EngineHandle
from voxcpm_core.lora.registration import new_record
from voxcpm_core.lora.store import LoraRecord, LoraStore, already_registered
from voxcpm_core.types import LoraRef


class Loras:
    """Thread-safe."""

    def __init__(self, config: EngineConfig) -> None:
        self._store = LoraStore(config.lora_root if config.num_lora_slots else "")
        self._lock = threading.Lock()
        self._own: dict[str, LoraRecord] = {}

    def register(self, engine: EngineHandle, name: str, path: str | os.PathLike[str]) -> None:
        """Read an adapter's folder and keep it under a name, for this pool alone. Raises RequestError."""
        if not isinstance(path, (str, os.PathLike)):
            raise invalid_parameter(f"path: expected a folder, got {shown(path)}")
        record = new_record(self._store, engine, name, os.fspath(path), None, None)
        with self._lock:
            if record.name in self._own:
                raise already_registered(record.name)
            self._own[record.name] = record

    def unregister(self, name: str) -> None:
        """Streams that have begun with it go on. Raises UNKNOWN_LORA."""
        with self._lock:
            own = self._own.pop(str(name), None)
        if own is None:
            self._store.remove(str(name))

    def names(self) -> list[str]:
        with self._lock:
            return sorted({*self._own, *(record.name for record in self._store.records())})

    def get(self, name: str) -> LoraRef:
        """Raises UNKNOWN_LORA."""
        with self._lock:
            own = self._own.get(str(name))
        return own.ref if own is not None else self._store.get(str(name)).ref
