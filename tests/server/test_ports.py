"""Ports that are taken, free, or no ports; and who listens on one."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from voxcpm_client.server import ServerError
from voxcpm_client.server.listening import group_listens
from voxcpm_client.server.ports import require_free, with_free_ports

HOST = "127.0.0.1"


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server((HOST, 0)) as listener:
        yield listener.getsockname()[1]


def test_free_ports_differ_and_asked_ones_stay() -> None:
    chosen = with_free_ports(HOST, {"--a": 0, "--b": 0, "--c": 7})
    assert chosen["--c"] == 7
    assert len({*chosen.values()}) == 3
    assert 0 not in chosen.values()
    require_free(HOST, {"--a": chosen["--a"], "--b": chosen["--b"]})


def test_a_taken_port_is_named_with_its_option(taken: int) -> None:
    free = with_free_ports(HOST, {"--a": 0})
    with pytest.raises(ServerError, match=rf"^--b {taken}: cannot listen on {HOST}:{taken} \(Address already in use\)"):
        require_free(HOST, {**free, "--b": taken})


def test_a_port_asked_for_twice() -> None:
    port = with_free_ports(HOST, {"--a": 0})["--a"]
    with pytest.raises(ServerError, match=rf"^--b {port}"):
        require_free(HOST, {"--a": port, "--b": port})


@pytest.mark.parametrize(("host", "port"), [(HOST, 70000), ("192.0.2.1", 8001), ("nowhere.invalid", 8001)])
def test_what_cannot_be_listened_on(host: str, port: int) -> None:
    with pytest.raises(ServerError, match=rf"^--a {port}: cannot listen on {host}"):
        require_free(host, {"--a": port})


def test_a_port_with_lingering_connections_is_free() -> None:
    with socket.create_server((HOST, 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection((HOST, port)):
            listener.accept()[0].close()  # the side that closes first keeps the port in TIME_WAIT
    require_free(HOST, {"--a": port})


def test_group_listens(taken: int) -> None:
    free = with_free_ports(HOST, {"--a": 0})["--a"]
    assert group_listens(os.getpgrp(), taken)
    assert not group_listens(os.getpgrp(), free)
    assert not group_listens(1 << 30, taken)
