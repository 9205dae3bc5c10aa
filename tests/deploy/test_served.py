"""A real server with the arguments of the deployment."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from tests.deploy import manifests
from tests.server.wire import call
from tests.server_process import with_one_instance
from voxcpm_client.server import TritonServer

pytestmark = pytest.mark.server
KEY = "for-this-test"


def get(server: TritonServer, path: str, headers: dict[str, str] | None = None) -> int:
    connection = http.client.HTTPConnection(server.http_url, timeout=20)
    try:
        connection.request("GET", path, headers=headers or {})
        return connection.getresponse().status
    finally:
        connection.close()


def test_the_deployment_s_arguments_and_no_metrics(start_server: Callable[..., TritonServer], tmp_path: Path):
    arguments = [each.replace("$(TRITON_ADMIN_KEY)", KEY) for each in manifests.container()["args"][2:]]
    server = start_server(repository=with_one_instance(tmp_path), arguments=(*arguments, "--allow-metrics=false"))
    assert call(server, max_length=2).errors == []
    assert get(server, manifests.container()["readinessProbe"]["httpGet"]["path"]) == 200
    assert get(server, "/v2/models/voxcpm/config") == 403
    assert get(server, "/v2/models/voxcpm/config", {"admin-key": KEY}) == 200
    with grpcclient.InferenceServerClient(server.grpc_url) as client:
        with pytest.raises(InferenceServerException):
            client.get_model_repository_index()
        assert client.get_model_repository_index(headers={"triton-grpc-protocol-admin-key": KEY}).models
    host, port = server.metrics_url.split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))
