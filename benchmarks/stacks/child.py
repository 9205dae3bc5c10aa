"""A process that answers lines with lines, and is killed when it takes too long."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from typing import Any


class Hung(Exception):
    """No answer in time."""


class Child:
    """One process; its standard error is this one's."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def ask(self, question: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Raises Hung where nothing comes in time, and EOFError where the process has ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise EOFError("the process has ended") from None
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise Hung(f"no answer after {timeout_s:.0f} s") from None
        if not line:
            raise EOFError(f"the process ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """Also where a kernel runs for ever: the driver ends it with its process."""
        self._process.kill()
        self._process.wait()
