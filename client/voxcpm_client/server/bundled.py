"""The tritonserver 2.51 inside nvidia-pytriton: a binary, one Python backend and a stub for each Python version.

The stub embeds libpython, so it needs the interpreter's shared library. It runs isolated: PYTHONPATH and user packages
are ignored, and its packages are those of the environment whose `python3` comes first on PATH.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from voxcpm_client.server.errors import ServerError

_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_LIBPYTHON = f"libpython{_VERSION}.so.1.0"


def check_interpreter() -> None:
    """Raise ServerError unless the stub of the bundled server can run in this interpreter."""
    _root()
    if not _stub().is_file():
        raise ServerError(f"the tritonserver of nvidia-pytriton has no stub for Python {_VERSION}; use 3.10 to 3.12")
    numpy_version = importlib.metadata.version("numpy")
    if int(numpy_version.split(".")[0]) >= 2:
        raise ServerError(
            f"numpy {numpy_version} is installed, and the tritonserver 2.51 of nvidia-pytriton crashes with numpy 2 "
            "and later; run: pip install 'numpy<2'"
        )
    _libpython_folder()


def server_binary() -> Path:
    return _root() / "bin" / "tritonserver"


def lay_out_backends(folder: Path) -> None:
    """Put the Python backend into `folder`/python as tritonserver expects it: one folder with the stub beside it."""
    target = folder / "python"
    target.mkdir(parents=True)
    backend = _root() / "backends" / "python"
    for file in (backend / "libtriton_python.so", backend / "triton_python_backend_utils.py", _stub()):
        (target / file.name).symlink_to(file)


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables for the server, so that its stubs run this interpreter with its installed packages."""
    libraries = _root().parents[1] / "nvidia_pytriton.libs"
    return {
        "PATH": _joined([str(Path(sys.executable).parent)], environ.get("PATH")),
        "LD_LIBRARY_PATH": _joined([str(libraries), str(_libpython_folder())], environ.get("LD_LIBRARY_PATH")),
    }


def _joined(first: list[str], rest: str | None) -> str:
    return os.pathsep.join(dict.fromkeys([*first, *(rest.split(os.pathsep) if rest else [])]))


def _root() -> Path:
    spec = importlib.util.find_spec("pytriton")
    if spec is None or spec.origin is None:
        raise ServerError(
            "no tritonserver on PATH and nvidia-pytriton is not installed; run: pip install 'voxcpm-triton[server]' "
            "(Python 3.10 to 3.12), or start this inside a tritonserver container"
        )
    return Path(spec.origin).parent / "tritonserver"


def _stub() -> Path:
    return _root() / "python_backend_stubs" / _VERSION / "triton_python_backend_stub"


def _libpython_folder() -> Path:
    """The folder of the interpreter's shared library; pyenv keeps it in LIBDIR, Debian one level below."""
    configured = [sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("LIBPL")]
    folders = [Path(folder) for folder in configured if folder]
    multiarch = sysconfig.get_config_var("MULTIARCH") or f"{platform.machine()}-linux-gnu"
    folders += [Path(sys.base_prefix) / "lib", Path("/usr/lib") / multiarch]
    for folder in folders:
        if (folder / _LIBPYTHON).exists():
            return folder
    raise ServerError(
        f"{_LIBPYTHON} was not found in {', '.join(map(str, folders))}; the Python stub of tritonserver needs it: "
        f"apt-get install libpython{_VERSION}, or a Python built with --enable-shared"
    )
