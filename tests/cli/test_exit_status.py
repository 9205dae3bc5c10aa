"""Every error has an exit status."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from pathlib import Path

import pytest

from voxcpm_client import errors
from voxcpm_client.cli.exit_status import FAILURE, exit_status


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.InvalidText("x"), os.EX_DATAERR),
        (errors.UnknownVoice("x"), os.EX_DATAERR),
        (errors.Forbidden("x"), os.EX_NOPERM),
        (errors.InvalidUrl("x"), os.EX_USAGE),
        (errors.UnknownModel("x"), os.EX_CONFIG),
        (errors.NotReady("x"), os.EX_TEMPFAIL),
        (errors.Overloaded("x"), os.EX_TEMPFAIL),
        (errors.Draining("x"), os.EX_TEMPFAIL),
        (errors.QueueTimeout("x"), os.EX_TEMPFAIL),
        (errors.GapTimeout("x"), os.EX_TEMPFAIL),
        (errors.ServerUnavailable("x"), os.EX_UNAVAILABLE),
        (errors.ConnectionLost("x"), os.EX_UNAVAILABLE),
        (errors.InternalError("x"), os.EX_SOFTWARE),
        (errors.StubUnhealthy("x"), os.EX_SOFTWARE),
        (errors.StreamBroken("x"), os.EX_SOFTWARE),
        (errors.VoxError("of Triton's own"), os.EX_SOFTWARE),
        (errors.NoPlayer("x"), os.EX_OSERR),
        (errors.Cancelled("x"), FAILURE),
        (FileNotFoundError("x"), FAILURE),
        (ValueError("x"), FAILURE),
    ],
)
def test_the_kind_of_an_error_decides(error: Exception, status: int) -> None:
    assert exit_status(error) == status


def _kinds(parent: type[errors.VoxError]) -> list[type[errors.VoxError]]:
    return [kind for child in parent.__subclasses__() for kind in (child, *_kinds(child))]


def test_the_documentation_has_every_code_with_its_status() -> None:
    text = (Path(__file__).parents[2] / "docs" / "operating.md").read_text(encoding="utf-8")
    section = text.split("## The client\n", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", section, re.M)
    documented = {int(status): set(re.findall(r"[A-Z]+_[A-Z_]+|[A-Z]{4,}", errors)) for status, errors in rows}
    statuses: dict[int, set[str]] = defaultdict(set)
    for kind in _kinds(errors.VoxError):
        if kind.code:
            statuses[exit_status(kind("x"))].add(kind.code)
    assert documented == statuses
