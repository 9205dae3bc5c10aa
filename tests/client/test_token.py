"""The admin token that `serve` leaves for its user."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from voxcpm_client.control.token import find_token, left_for_the_user, new_token


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("VOXCPM_ADMIN_TOKEN", raising=False)
    return tmp_path / f"voxcpm-{os.geteuid()}"


def test_it_is_found_for_its_server_alone_and_gone_with_it(folder: Path) -> None:
    token = new_token()
    assert len(token) >= 43
    assert token != new_token()
    assert find_token("localhost:8001") is None
    with left_for_the_user(token, "127.0.0.1:8001"):
        (file,) = folder.iterdir()
        assert file.stat().st_mode & 0o777 == 0o600
        assert folder.stat().st_mode & 0o777 == 0o700
        for url in ("localhost:8001", "127.0.0.1:8001", "[::1]:8001"):
            assert find_token(url) == token
        for url in ("localhost:8002", "example.com:8001", "10.0.0.1:8001", "unix:/run/triton", "localhost:../x"):
            assert find_token(url) is None
    assert find_token("localhost:8001") is None
    assert list(folder.iterdir()) == []


def test_the_environment_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOXCPM_ADMIN_TOKEN", "given")
    with left_for_the_user("left", "localhost:8001"):
        assert find_token("localhost:8001") == "given"


def test_a_later_server_on_the_port_keeps_its_token() -> None:
    with left_for_the_user("second's", "localhost:8001"):
        with left_for_the_user("first's", "localhost:8001"):
            pass
        assert find_token("localhost:8001") is None, "the file was the last one's"
    first, second = (left_for_the_user(token, "localhost:8001") for token in ("first's", "second's"))
    with first:
        second.__enter__()
    assert find_token("localhost:8001") == "second's"
    second.__exit__(None, None, None)
    assert find_token("localhost:8001") is None


def test_a_folder_that_others_can_enter_is_not_trusted(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    with pytest.raises(PermissionError), left_for_the_user("t", "localhost:8001"):
        pass
    (folder / "token-8001").write_text("planted")
    assert find_token("localhost:8001") is None
