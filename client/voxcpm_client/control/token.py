"""The admin token of a server that this user started on this machine, for the user's own programs."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from voxcpm_core.local.folder import user_folder

TOKEN_VARIABLE = "VOXCPM_ADMIN_TOKEN"
_HERE = frozenset({"localhost", "127.0.0.1", "[::1]"})


def new_token() -> str:
    """256 bits nobody can guess."""
    return secrets.token_urlsafe(32)


@contextmanager
def left_for_the_user(token: str, grpc_url: str) -> Iterator[None]:
    """Within it the token lies where `find_token` looks, readable by this user alone. Raises OSError."""
    port = grpc_url.rpartition(":")[2]
    with user_folder(create=True) as folder:
        hidden = folder / f".token-{port}-{secrets.token_hex(4)}"
        with open(os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(token)
        hidden.rename(_file(folder, port))
    try:
        yield
    finally:
        with contextlib.suppress(OSError), user_folder(create=False) as folder:
            file = _file(folder, port)
            if file.read_text() == token:  # else it is another server's, which has the port now
                file.unlink()


def find_token(url: str) -> str | None:
    """The token for the server at `url`: VOXCPM_ADMIN_TOKEN, else what was left for a server on this machine."""
    if given := os.environ.get(TOKEN_VARIABLE):
        return given
    host, _, port = url.rpartition(":")
    if host not in _HERE or not port.isdecimal():  # never another machine's business
        return None
    with contextlib.suppress(OSError), user_folder(create=False) as folder:
        return _file(folder, port).read_text()
    return None


def _file(folder: Path, port: str) -> Path:
    return folder / f"token-{port}"
