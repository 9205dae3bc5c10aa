"""Each setting that docs/operating.md lists is there for a test, which fails where it is missing."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.soak.expectations import Copy, expectations, without
from tests.test_operating import ROOT

SEED = int(os.environ.get("EXPECTATIONS_SEED", "0"))
NUM_REMOVED = int(os.environ.get("EXPECTATIONS", "10"))


def test_every_setting_is_in_one_place_and_every_test_exists():
    assert len(expectations()) > 20
    for each in expectations():
        content = (ROOT / each.file).read_text(encoding="utf-8")
        assert without(content, each.text) != content
        file, _, function = each.test.partition("::")
        assert f"def {function}(" in (ROOT / file).read_text(encoding="utf-8"), each.test


def test_a_setting_goes_with_what_belongs_to_it():
    assert without("a:\n  b: 1\n  c:\n    d: 2\n\n    e: 3\n  f: 4\n", "c:") == "a:\n  b: 1\n\n    e: 3\n  f: 4\n"
    with pytest.raises(ValueError, match="unpack"):
        without("a: 1\na: 1\n", "a: 1")


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_ten_that_are_removed_are_ten_failures(tmp_path: Path):
    removed = random.Random(SEED).sample(expectations(), NUM_REMOVED)
    copy = Copy(tmp_path / "copy")
    assert {test: copy.outcome(test) for test in {each.test for each in removed}} == {each.test: 0 for each in removed}
    missed = [each.meaning for each in removed if copy.outcome_without(each) != 1]
    print("\n".join(f"without {each.text}: {each.test} fails" for each in removed if each.meaning not in missed))
    assert missed == []
