"""The registered adapters of a folder, as it is at the moment: nothing is watched, so several servers may share it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from voxcpm_core.errors import ErrorCode, RequestError, shown
from voxcpm_core.lora.facts import LoraFacts, no_loras
from voxcpm_core.paths import as_path
from voxcpm_core.shared_folder import file_name, is_gone, refused, sweep, temporary_path
from voxcpm_core.types import LoraRef

FOLDER = ".registered"  # in the folder of adapters


@dataclass(frozen=True)
class LoraRecord:
    """All that is known of a registered adapter; what its JSON file holds."""

    name: str
    path: str  # of its folder, below the folder of all
    source: str  # where it came from: that path, or an address
    rank: int
    created: str  # UTC, ISO 8601
    digest: str  # of its files
    weights_sha256: str

    @classmethod
    def make(cls, name: str, path: str, source: str, facts: LoraFacts) -> LoraRecord:
        created = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        return cls(name, path, source, facts.rank, created, facts.digest, facts.weights_sha256)

    @property
    def ref(self) -> LoraRef:
        return LoraRef(self.name, self.path, self.digest)

    def listed(self) -> dict[str, Any]:
        """What a list of adapters tells of it."""
        return {name: getattr(self, name) for name in ("name", "rank", "source", "created")}

    @classmethod
    def from_json(cls, data: bytes) -> LoraRecord:
        """Raises ValueError for anything but a record; keys of later versions are left alone."""
        values = json.loads(data)
        wanted = {field.name: int if field.name == "rank" else str for field in fields(cls)}
        if not isinstance(values, dict) or not all(type(values.get(name)) is kind for name, kind in wanted.items()):
            raise ValueError("not the record of an adapter")
        return cls(**{name: values[name] for name in wanted})


class LoraStore:
    """Thread-safe; any number of stores, in any number of processes, may share a folder.

    What one changes the others see at their next call. An adapter is a name and what its files held when it was
    registered; the files stay where they are.
    """

    def __init__(self, root: str) -> None:
        """`root`: the folder of all adapters; "" is a store that has and takes none."""
        self._folder = as_path(root) / FOLDER if root else None

    def get(self, name: str) -> LoraRecord:
        """Raises UNKNOWN_LORA, and INTERNAL for one that cannot be read."""
        with _faults(name):
            return LoraRecord.from_json(self._read(name))

    def has(self, name: str) -> bool:
        """Whether the name is taken."""
        if self._folder is None:
            return False
        try:
            with _faults(name):
                self._read(name)
        except RequestError as error:
            if error.code is ErrorCode.UNKNOWN_LORA:
                return False
            raise
        return True

    def add(self, record: LoraRecord) -> None:
        """Raises ALREADY_EXISTS, and INTERNAL when the folder cannot be written."""
        if self._folder is None:
            raise no_loras()
        with _faults(record.name):
            self._folder.mkdir(exist_ok=True)
            temporary = temporary_path(self._folder)
            try:
                with temporary.open("wb") as file:
                    file.write(json.dumps(asdict(record), ensure_ascii=False, indent=1).encode())
                    file.flush()
                    os.fsync(file.fileno())
                sweep(self._folder, temporary)
                os.link(temporary, self._file(record.name))  # unlike a rename it takes no name twice
            except FileExistsError:
                raise already_registered(record.name) from None
            finally:
                temporary.unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """Raises UNKNOWN_LORA, and INTERNAL when the folder cannot be written."""
        with _faults(name):
            self._file(name).unlink()

    def records(self) -> list[LoraRecord]:
        """Of all adapters, by name; one that cannot be read is left out."""
        found = []
        for file in self._folder.glob("*.json") if self._folder is not None else ():
            with suppress(OSError, ValueError):
                found.append(LoraRecord.from_json(file.read_bytes()))
        return sorted(found, key=lambda record: record.name)

    def _read(self, name: str) -> bytes:
        """The folder is opened, not only looked up: that makes a network file system ask its server for new files."""
        file = self._file(name)
        descriptor = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with open(os.open(file.name, os.O_RDONLY, dir_fd=descriptor), "rb") as opened:
                return opened.read()
        finally:
            os.close(descriptor)

    def _file(self, name: str) -> Path:
        if self._folder is None:
            raise unknown_lora(name)
        return self._folder / f"{file_name(name)}.json"


def already_registered(name: str) -> RequestError:
    """The error of a name that is taken."""
    return RequestError(ErrorCode.ALREADY_EXISTS, f"the adapter {shown(name)} exists; unregister it first")


def unknown_lora(name: object) -> RequestError:
    """The error of a name that nobody registered, or whose registration is gone."""
    return RequestError(ErrorCode.UNKNOWN_LORA, f"there is no adapter {shown(name)}")


@contextmanager
def _faults(name: str) -> Iterator[None]:
    """What goes wrong with files as a RequestError, which names no path."""
    try:
        yield
    except OSError as error:
        raise (unknown_lora(name) if is_gone(error) else refused("adapter", name, error)) from None
    except ValueError:
        raise RequestError(ErrorCode.INTERNAL, f"the record of the adapter {shown(name)} is damaged") from None
