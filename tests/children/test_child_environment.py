"""What a child process imports, whatever the environment and the working directory hold."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import voxcpm_core

ROOT = Path(voxcpm_core.__file__).resolve().parents[1]
PARENT = f"""
import os, sys
sys.path.insert(0, {str(ROOT)!r})
from voxcpm_core.children.python import start_python
process, end = start_python(("-c", "import voxcpm_core, colorsys; print(colorsys.__file__)"), os.environ)
sys.exit(process.wait())
"""


def imported_by_a_child(tmp_path: Path, *flags: str) -> str:
    """The file of a standard module in a child whose PYTHONPATH has one of the same name."""
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    (shadow / "colorsys.py").touch()
    environ = {**os.environ, "PYTHONPATH": str(shadow)}
    parent = subprocess.run(
        [sys.executable, *flags, "-c", PARENT], env=environ, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    return parent.stdout


def test_pythonpath_is_handed_on(tmp_path: Path):
    assert imported_by_a_child(tmp_path).startswith(str(tmp_path))


def test_an_isolated_parent_has_isolated_children(tmp_path: Path):
    """As Triton's stub is: it ignores the variables that Python reads."""
    assert str(tmp_path) not in imported_by_a_child(tmp_path, "-I")


def test_the_working_directory_is_not_looked_into(tmp_path: Path):
    """Where -P is not known, before Python 3.11, it comes first of all."""
    (tmp_path / "colorsys.py").touch()
    assert str(tmp_path / "colorsys.py") not in imported_by_a_child(tmp_path, "-I")
