"""docs/operating.md names every setting with its default, every error, and every input, and no other."""

import re
from dataclasses import fields
from pathlib import Path

from voxcpm_core.config import EngineConfig
from voxcpm_core.errors import ErrorCode
from voxcpm_core.metrics.catalog import METRICS

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    return TEXT.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]


def rows(heading: str) -> list[list[str]]:
    """Cells of the first table under a heading, without its head."""
    lines = [line for line in section(heading).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def anchor(heading: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def test_the_table_of_contents():
    contents, _, rest = TEXT.partition("\n## ")
    linked = re.findall(r"\]\(#([^)]+)\)", contents)
    assert sorted(linked) == sorted(map(anchor, re.findall(r"^## (.+)$", TEXT, re.M)))
    headings = {anchor(each) for each in re.findall(r"^##+ (.+)$", TEXT, re.M)}
    assert set(re.findall(r"\]\(#([^)]+)\)", rest)) <= headings


def test_settings():
    documented = {row[0].strip("`"): row[1].strip("`") for row in rows("Settings")}
    defaults = {field.name: field.default for field in fields(EngineConfig)}
    assert list(documented) == list(defaults)
    for name, default in defaults.items():
        if default != "":
            assert documented[name] == str(default), name


def test_errors():
    documented = {row[0].strip("`"): row[2] for row in rows("Errors")}
    assert documented == {code.value: code.triton_code for code in ErrorCode}


def test_inputs():
    config = (ROOT / "model_repository" / "voxcpm" / "config.pbtxt").read_text(encoding="utf-8")
    inputs = re.findall(r'name: "(\w+)"', config.split("output [", 1)[0].split("input [", 1)[1])
    documented = [name for row in rows("Requests") for name in re.findall(r"`(\w+)`", row[0])]
    assert sorted(documented) == sorted(inputs)


def test_metrics():
    kinds = {row[0].strip("`"): re.findall(r"\w+", row[1].replace(", by", "")) for row in rows("Metrics")}
    assert kinds == {each.name: [each.kind.value, *filter(None, [each.label])] for each in METRICS}
    assert [row[2] for row in rows("Metrics")] == [each.meaning for each in METRICS]
