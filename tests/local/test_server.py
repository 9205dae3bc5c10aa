"""The socket of an instance: who answers, what is refused, and that nothing holds up anything else."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from voxcpm_core.errors import ErrorCode, RequestError
from voxcpm_core.local.client import LocalClient, connect_instances
from voxcpm_core.local.folder import own_folder
from voxcpm_core.local.messages import MAX_ATTACHED_BYTES
from voxcpm_core.local.server import MAX_LINE_BYTES, LocalServer

GENEROUS_S = 5.0
HERE = os.getpid()
OTHER_PROCESS = """
import sys
from voxcpm_core.local.server import LocalServer
LocalServer("other", {"who": lambda request: {}}, int(sys.argv[1]), print)
print("up", flush=True)
input()
"""


class Instances:
    """Servers of this process, and what they logged."""

    def __init__(self, stack: ExitStack) -> None:
        self.log: list[str] = []
        self.blocks, self.release = threading.Event(), threading.Event()
        self._stack = stack

    def start(self, model: str = "voxcpm", name: str = "0", server_pid: int = HERE) -> LocalServer:
        operations = {
            "who": lambda request: {"name": name, "echo": request.get("echo")},
            "block": self._block,
            "refuse": self._refuse,
            "fail": lambda request: {"never": 1 / 0},
            "swap": lambda request: {"one": request["two"], "two": request["one"], "plain": request["plain"]},
        }
        server = LocalServer(model, operations, server_pid, self.log.append)
        self._stack.callback(server.close)
        return server

    def connect(self, model: str = "voxcpm", server_pid: int = HERE) -> list[LocalClient]:
        return [self._stack.enter_context(client) for client in connect_instances(model, server_pid, GENEROUS_S)]

    def _block(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.blocks.set()
        return {"released": self.release.wait(GENEROUS_S)}

    def _refuse(self, request: Mapping[str, Any]) -> dict[str, Any]:
        raise RequestError(ErrorCode.OVERLOADED, "full, retry after 5 ms")


@pytest.fixture
def instances() -> Iterator[Instances]:
    with ExitStack() as stack:
        made = Instances(stack)
        yield made
        made.release.set()


def raw(server_pid: int = HERE) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(GENEROUS_S)
    with own_folder(server_pid, create=False) as folder:
        (path,) = folder.iterdir()
        connection.connect(str(path))
    return connection


def exchange(connection: socket.socket, line: bytes) -> dict[str, Any]:
    connection.sendall(line)
    answer = b""
    while not answer.endswith(b"\n"):
        answer += connection.recv(65536)
    return json.loads(answer)


def test_all_instances_of_a_model_are_found_and_no_others(instances: Instances):
    for name in ("a", "b"):
        instances.start(name=name)
    instances.start(model="voxcpm_2", name="c")
    assert {client.ask("who", echo="ü")["name"] for client in instances.connect()} == {"a", "b"}
    assert [client.ask("who")["name"] for client in instances.connect("voxcpm_2")] == ["c"]
    assert instances.connect("nobody") == []


def test_two_servers_on_one_host_do_not_meet(
    instances: Instances, start_process: Callable[[], subprocess.Popen[bytes]]
):
    other = start_process()
    assert instances.connect(server_pid=other.pid) == []
    instances.start(name="mine")
    instances.start(name="theirs", server_pid=other.pid)
    assert [client.ask("who")["name"] for client in instances.connect()] == ["mine"]
    assert [client.ask("who")["name"] for client in instances.connect(server_pid=other.pid)] == ["theirs"]


def test_refusals_and_faults_keep_their_codes_and_the_connection(instances: Instances):
    instances.start()
    (client,) = instances.connect()
    with pytest.raises(RequestError, match="retry after 5 ms") as refused:
        client.ask("refuse")
    assert refused.value.code is ErrorCode.OVERLOADED
    with pytest.raises(RequestError) as failed:
        client.ask("fail")
    assert failed.value.code is ErrorCode.INTERNAL
    assert "ZeroDivisionError" in instances.log[0]
    with pytest.raises(RequestError, match="op: expected one of block, fail, refuse, swap, who, got 'drain'"):
        client.ask("drain")
    assert client.ask("who")["name"] == "0"


@pytest.mark.parametrize(
    "line",
    [b"\n", b"{\n", b"[]\n", b"5\n", b"\xff\n", b"{}\n", b'{"op": 5}\n', b'{"op": ["who"]}\n', b"[" * 100_000 + b"\n"],
)
def test_a_bad_line_gets_an_error_and_the_next_one_its_answer(instances: Instances, line: bytes):
    instances.start()
    with raw() as connection:
        assert exchange(connection, line)["error"]["code"] == "INVALID_PARAMETER"
        assert exchange(connection, b'{"op": "who"}\n')["result"]["name"] == "0"


def test_a_line_without_end_is_refused_and_cut_off(instances: Instances):
    instances.start()
    with raw() as connection:
        answer = exchange(connection, b"x" * (MAX_LINE_BYTES + 1))
        assert str(MAX_LINE_BYTES) in answer["error"]["message"]
        assert connection.recv(1) == b""


def test_bytes_go_both_ways_beside_other_fields(instances: Instances):
    instances.start()
    (client,) = instances.connect()
    large, odd = bytes(range(256)) * 20_000, b'\n{"op": "fail"}\n'
    for _ in range(2):
        answer = client.ask("swap", one=large, two=odd, plain="ü")
        assert answer == {"one": odd, "two": large, "plain": "ü"}
    assert client.ask("swap", one=b"", two="text", plain=None) == {"one": "text", "two": b"", "plain": None}
    with pytest.raises(RequestError, match="full"):
        client.ask("refuse", one=large)
    assert client.ask("who")["name"] == "0"


@pytest.mark.parametrize(
    "attached", [[], 5, {"a": -1}, {"a": "5"}, {"a": True}, {"a": MAX_ATTACHED_BYTES, "b": 1}, {"a": 1 << 70}]
)
def test_what_cannot_be_attached_is_refused_and_cut_off(instances: Instances, attached: object):
    instances.start()
    with raw() as connection:
        answer = exchange(connection, json.dumps({"op": "who", "attached": attached}).encode() + b"\n")
        assert "attached" in answer["error"]["message"]
        assert connection.recv(1) == b""


def test_a_caller_who_leaves_amid_what_is_attached_is_forgotten(instances: Instances):
    server = instances.start()
    with raw() as connection:
        connection.sendall(b'{"op": "who", "attached": {"a": 1000}}\n' + bytes(10))
    server.close()
    assert instances.log == []


def test_a_blocking_operation_and_a_silent_caller_hold_up_nobody(instances: Instances):
    instances.start()
    with raw(), raw() as blocked, raw() as unread:
        blocked.sendall(b'{"op": "block"}\n')
        unread.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                unread.send(b'{"op": "who"}\n' * 1000)
        (client,) = instances.connect()
        assert client.ask("who")["name"] == "0"


def test_close_ends_connections_threads_and_the_file(instances: Instances):
    server = instances.start()
    (idle,) = instances.connect()
    with raw() as blocked:
        blocked.sendall(b'{"op": "block"}\n')
        assert instances.blocks.wait(GENEROUS_S)
        threading.Timer(0.1, instances.release.set).start()
        server.close()
        server.close()
        assert json.loads(blocked.recv(1000)) == {"result": {"released": True}}, "an answer in the making gets out"
    with pytest.raises(ConnectionError):
        idle.ask("who")
    assert instances.connect() == []
    assert not any(thread.name == "voxcpm-local" for thread in threading.enumerate())
    with own_folder(HERE, create=False) as folder:
        assert list(folder.iterdir()) == []


def test_a_killed_instance_is_passed_over(instances: Instances):
    instances.start(model="other")
    killed = subprocess.Popen(
        [sys.executable, "-c", OTHER_PROCESS, str(HERE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    with killed:
        assert killed.stdout.readline() == b"up\n"
        assert len(instances.connect("other")) == 2
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert len(instances.connect("other")) == 1
    with own_folder(HERE, create=False) as folder:
        assert len(list(folder.iterdir())) == 1


def test_a_silent_instance_is_a_timeout(instances: Instances):
    instances.start()
    (client,) = connect_instances("voxcpm", HERE, timeout_s=0.1)
    with client, pytest.raises(TimeoutError):
        client.ask("block")
    instances.release.set()
