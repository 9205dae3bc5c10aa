"""A real server with the arguments of the deployment, from its start to its preStop hook and SIGTERM."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from tests.deploy import manifests
from tests.server.clips import clip
from tests.server.instance import Instance
from tests.server.streams import LONG, GrpcStream
from tests.server.wire import call, generate
from tests.server_process import ADMIN_TOKEN, make_server, require_installation, with_one_instance
from tests.stopped import stopped
from voxcpm_client import Client, errors
from voxcpm_client.server import TritonServer

pytestmark = pytest.mark.server
KEY = "for-this-test"
ENDED_S = 10.0  # with all that Triton takes for itself


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    require_installation(dict(os.environ))
    folder = tmp_path_factory.mktemp("deployed")
    arguments = [each.replace("$(TRITON_ADMIN_KEY)", KEY) for each in manifests.container()["args"][2:]]
    with make_server(
        folder / "tritonserver.log", repository=with_one_instance(folder), VOXCPM_ADMIN_TOKEN=ADMIN_TOKEN,
        arguments=(*arguments, "--allow-metrics=false"),
    ) as server:
        yield server


def get(server: TritonServer, path: str, headers: dict[str, str] | None = None) -> int:
    connection = http.client.HTTPConnection(server.http_url, timeout=20)
    try:
        connection.request("GET", path, headers=headers or {})
        return connection.getresponse().status
    finally:
        connection.close()


def test_the_deployment_s_arguments_and_no_metrics(server: TritonServer):
    assert call(server, max_length=2).errors == []
    assert get(server, manifests.container()["readinessProbe"]["httpGet"]["path"]) == 200
    assert get(server, "/v2/models/voxcpm/config") == 403
    assert get(server, "/v2/models/voxcpm/config", {"admin-key": KEY}) == 200
    with grpcclient.InferenceServerClient(server.grpc_url) as client:
        with pytest.raises(InferenceServerException):
            client.get_model_repository_index()
        allowed = {"triton-grpc-protocol-admin-key": KEY}
        assert client.get_model_repository_index(headers=allowed).models
        with pytest.raises(InferenceServerException, match="explicit model load / unload is not allowed"):
            client.load_model("voxcpm", headers=allowed)
    host, port = server.metrics_url.split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))


def pre_stop(server: TritonServer, deadline_ms: int) -> list[str]:
    """The deployment's hook for this server, in a hurry, with the command line of this checkout."""
    *shell, line = manifests.container()["lifecycle"]["preStop"]["exec"]["command"]
    wait, waited, drain = line.partition("voxcpm-triton drain")
    assert (wait, waited, drain.split()[0]) == ("sleep 15; ", "voxcpm-triton drain", "--deadline-ms")
    option, _, *otherwise = drain.split()
    here = f"{sys.executable} -m voxcpm_client drain --url {server.grpc_url} {option} {deadline_ms}"
    return [*shell, " ".join([here, *otherwise])]


def test_the_pre_stop_hook_drains_and_the_server_ends_at_once(server: TritonServer):
    """Last in this file: nobody can use the server any more."""
    with pytest.raises(errors.Forbidden):
        Client(url=server.grpc_url, token="wrong").drain()
    finishing = GrpcStream(server, {**LONG, "max_length": 150})
    cut = GrpcStream(server, {**LONG, "max_length": 3000}, "cut")
    assert finishing.next_chunk()
    assert cut.next_chunk()
    with ExitStack() as stack:
        # The engine's process is stopped, so that whoever finishes does not do it now.
        instance = stack.enter_context(Instance(server))
        stack.enter_context(stopped([instance.status()["worker_pid"]]))
        client = stack.enter_context(Client(url=server.grpc_url, token=ADMIN_TOKEN, timeout_s=60, retries=0))
        assert client.drain() == 2
        assert (client.status()["draining"], client.status()["ready"]) == (True, False)
        assert call(server, max_length=1).code == "DRAINING"
        status, answer = generate(server, {"target_text": "Hello", "stream": False, "encoding": "base64"})
        assert (status, "[DRAINING]" in answer["error"]) == (400, True)
        with pytest.raises(errors.Draining) as refused:
            client.encode(clip())
        assert refused.value.retry_after_ms == 1000
    finishing.finish()
    assert finishing.errors == []
    environment = {**os.environ, "VOXCPM_ADMIN_TOKEN": ADMIN_TOKEN}
    told = subprocess.check_output(pre_stop(server, 300), env=environment, cwd=manifests.ROOT)
    assert told == b"open: 1\nopen: 0\n"
    cut.finish()
    assert "[DRAINING] request cut: not finished within the 300 ms" in cut.errors[0]
    start_s = time.monotonic()
    os.kill(server.pid, signal.SIGTERM)
    while server.exit_code() is None:
        assert time.monotonic() - start_s < ENDED_S
        time.sleep(0.05)
    assert server.exit_code() == 0
