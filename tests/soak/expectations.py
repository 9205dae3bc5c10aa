"""What docs/operating.md says that operators expect: where it is set, and the test that fails without the setting."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.test_operating import ROOT, rows

_NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "build", "*.egg-info", "soak-report.*")
_LIMIT_S = 900  # a test that waits for an answer that does not come ends itself


@dataclass(frozen=True)
class Expectation:
    """`text` stands in one line of `file`, which sets it together with the deeper lines that follow."""

    meaning: str
    file: Path  # from the root of the repository
    text: str
    test: str  # as pytest takes it


def expectations() -> list[Expectation]:
    """Raises ValueError for a row that is not of this form."""
    tests = {file.stem: file.relative_to(ROOT) for file in (ROOT / "tests").rglob("test_*.py")}
    found = []
    for meaning, where, shown_by in rows("What an operator expects"):
        place = re.fullmatch(r"`([^`]+)`: `([^`]+)`", where)
        test = re.fullmatch(r"`(test_\w+)::(test_\w+)`", shown_by)
        if place is None or test is None:
            raise ValueError(f"{meaning}: {where}, {shown_by}")
        found.append(Expectation(meaning, Path(place[1]), place[2], f"{tests[test[1]]}::{test[2]}"))
    return found


def without(content: str, text: str) -> str:
    """`content` less the one line with `text` and the deeper ones that follow it."""
    lines = content.splitlines(keepends=True)
    (start,) = [index for index, line in enumerate(lines) if text in line]
    end = start + 1
    while end < len(lines) and _depth(lines[end]) > _depth(lines[start]):
        end += 1
    return "".join(lines[:start] + lines[end:])


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


class Copy:
    """The repository in another folder, from which settings may be removed."""

    def __init__(self, folder: Path) -> None:
        self.root: Path = shutil.copytree(ROOT, folder, ignore=_NOT_COPIED)
        shutil.copy(ROOT / ".dockerignore", folder)

    def outcome(self, test: str) -> int:
        """Pytest's exit status for one test: 0 passed, 1 failed."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
        return subprocess.run(command, cwd=self.root, stdout=subprocess.DEVNULL, timeout=_LIMIT_S).returncode

    def outcome_without(self, expectation: Expectation) -> int:
        file = self.root / expectation.file
        shipped = file.read_text(encoding="utf-8")
        file.write_text(without(shipped, expectation.text), encoding="utf-8")
        try:
            return self.outcome(expectation.test)
        finally:
            file.write_text(shipped, encoding="utf-8")
