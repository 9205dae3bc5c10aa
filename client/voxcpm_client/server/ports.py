"""Ports of a server: free ones where none were asked for, and a check that the others are free."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import ExitStack

from voxcpm_client.server.errors import ServerError


def with_free_ports(host: str, ports: Mapping[str, int]) -> dict[str, int]:
    """`ports` by option with each 0 replaced; all are held until the last is chosen, so that they differ."""
    with ExitStack() as held:
        chosen = {}
        for option, port in ports.items():
            if port == 0:
                probe = held.enter_context(socket.socket())
                _bind(probe, host, port, option)
                port = probe.getsockname()[1]
            chosen[option] = port
    return chosen


def require_free(host: str, ports: Mapping[str, int]) -> None:
    """Raise ServerError naming the first option whose port cannot be listened on."""
    with ExitStack() as held:
        for option, port in ports.items():
            probe = held.enter_context(socket.socket())
            # A port whose last connections linger is free for a server; one that is listened on is not.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _bind(probe, host, port, option)
            probe.listen()  # for the next option: it must not have the same port


def _bind(probe: socket.socket, host: str, port: int, option: str) -> None:
    try:
        probe.bind((host, port))
    except (OSError, OverflowError) as error:
        why = error.strerror if isinstance(error, OSError) else "no such port"
        raise ServerError(
            f"{option} {port}: cannot listen on {host}:{port} ({why}); give another port, or 0 for a free one"
        ) from None
