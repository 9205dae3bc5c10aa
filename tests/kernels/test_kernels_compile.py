"""Every Triton kernel compiles for Ampere, Ada and Hopper within their shared memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
TRITON_RELEASES = "3.4.0", "3.5.1", "3.6.0", "3.7.1", "3.8.0", "3.9.0"  # of torch 2.8 and later
SHARED_BYTES = {80: 99 * 1024, 89: 99 * 1024, 90: 227 * 1024}  # of a program; by compute capability


class Compiled(NamedTuple):
    """All kernels."""

    triton: str  # its release
    shared_bytes: dict[str, int]


def compiled(capability: int, *arguments: str, **variables: str) -> Compiled:
    """In a process of its own with these variables: in this one, kernels are interpreted."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"} | variables
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.compile_kernels", str(capability), *arguments],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return Compiled(**json.loads(done.stdout))


@pytest.mark.parametrize("capability", SHARED_BYTES)
@pytest.mark.parametrize("which", [(), pytest.param(("--all",), marks=pytest.mark.soak)], ids=["bf16", "all"])
def test_kernels_compile_within_the_shared_memory(capability, which):
    pytest.importorskip("triton", reason="Triton has no build for this machine")
    found = compiled(capability, *which).shared_bytes
    assert len(found) >= 16
    assert max(found.values()) <= SHARED_BYTES[capability]


@pytest.mark.soak
@pytest.mark.parametrize("version", TRITON_RELEASES)
def test_kernels_compile_with_every_release_of_triton(version, tmp_path):
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target", str(tmp_path)]
    subprocess.run([*pip, f"triton=={version}"], check=True, timeout=600)
    variables = {"PYTHONPATH": str(tmp_path), "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    for capability in SHARED_BYTES:
        found = compiled(capability, **variables)
        assert found.triton == version
        assert len(found.shared_bytes) >= 16
