"""Finding in a tritonserver's log why it did not come up."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import IO

_TAIL_LINES = 40
_FAILED_MODEL = re.compile(r"failed to load '([^']+)' version \d+: ([^\n]+)")
_FAILED_POLL = re.compile(r"Poll failed for model directory '([^']+)': ([^\n]+)")
_FAILED_SERVICE = re.compile(r'failed to start (\w+) service: ([^\n"]+)')
_MODELS_MESSAGE = "TritonModelException: "
_OWN_EXCEPTION = f"Internal: {_MODELS_MESSAGE}"
# Some options have a server go on without the models that failed.
_SERVES = re.compile(rb"Started (GRPCInference|HTTP)Service")
_TRACEBACK = "\\n\\nAt:\\n"  # Triton 2.51 writes the line breaks of a message as two characters


def causes(text: str) -> dict[str, str]:
    """What stopped a model or a service, by name, as far as the log's lines in `text` say it."""
    models = {f"model {name}": _cause(reason) for name, reason in _FAILED_MODEL.findall(text)}
    models |= {f"model folder {name}": reason.strip() for name, reason in _FAILED_POLL.findall(text)}
    return models | {f"{name} service": reason.strip() for name, reason in _FAILED_SERVICE.findall(text)}


def told(found: Mapping[str, str]) -> str:
    """`found` as the end of an error message's line; what several have in common is said once."""
    names: dict[str, list[str]] = {}
    for name, cause in found.items():
        names.setdefault(cause, []).append(name)
    return "".join(f"; {', '.join(names[cause])}: {cause}" for cause in names)


def failure(log_file: Path) -> str:
    """The causes in a log file; where it names none, its last lines."""
    text = log_file.read_text(errors="replace")
    found = causes(text)
    if found:
        return told(found)
    tail = "\n".join(deque((line for line in text.splitlines() if not line.startswith(("|", "+"))), _TAIL_LINES))
    return f"; the end of its log:\n{tail}"


class LogRelay(threading.Thread):
    """Passes a server's log on to this process's stderr, and keeps what stopped the server from starting.

    Once such a cause has been seen, only warnings and errors follow until `started` is called: a server that gives up
    prints its options and tables, which would bury the cause. Lines that say the cause itself, which each layer of the
    server logs anew, are held back, and dropped when the server ends: then whoever asked for it is told.
    """

    def __init__(self, source: IO[bytes]) -> None:
        super().__init__(name="voxcpm-server-log", daemon=True)
        self._source = source
        self._starting = True
        self._causes: dict[str, str] = {}

    def run(self) -> None:
        held: list[bytes] = []
        holds = True
        with open(2, "wb", closefd=False) as output:
            for line in self._source:
                holds = holds and self._starting and not _SERVES.search(line)
                if not holds:
                    _write(output, b"".join(held))
                    held.clear()
                if self._starting and self._takes(line) and holds:
                    held.append(line)
                elif not self._causes or line.startswith((b"E", b"W")):
                    _write(output, line)
            if not self._causes:
                _write(output, b"".join(held))
        self._source.close()

    def _takes(self, line: bytes) -> bool:
        """Keep the causes in a line; whether it says one, or what is going to be one."""
        text = line.decode(errors="replace")
        found = causes(text)
        self._causes.update(found)
        return bool(found) or _MODELS_MESSAGE in text

    def started(self) -> None:
        """Say that the server is ready."""
        self._starting = False
        self._causes = {}

    def causes(self) -> dict[str, str]:
        """What stopped the server, which has ended."""
        self.join(timeout=2)
        return self._causes


def _write(output: IO[bytes], line: bytes) -> None:
    try:
        output.write(line)
        output.flush()
    except OSError:  # nobody reads any more; the server must not block on that
        pass


def _cause(reason: str) -> str:
    return reason.removeprefix(_OWN_EXCEPTION).partition(_TRACEBACK)[0].rstrip('"')
