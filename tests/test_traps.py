"""The traps and the checklist in docs/operating.md name tests that exist, or say why there is none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_operating import rows

TESTS = Path(__file__).parent
FILES = {file.stem: file for file in TESTS.rglob("test_*.py")}


@pytest.mark.parametrize("heading", ["Traps", "Checklist"])
def test_every_trap_has_its_test_or_a_reason(heading: str):
    traps = rows(heading)
    assert len(traps) >= 30
    for trap, where in traps:
        names = re.findall(r"`(test_\w+)(?:::(test_\w+))?`", where)
        assert names or where.startswith("no test: "), trap
        for stem, function in names:
            assert stem in FILES, f"{trap}: no file {stem}.py"
            if function:
                assert f"def {function}(" in FILES[stem].read_text(encoding="utf-8"), f"{trap}: no {stem}::{function}"
