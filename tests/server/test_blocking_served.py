"""`voxcpm_blocking` on a real server: one instance, many requests, over every way to ask for one answer."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

from tests.server.instance import GENEROUS_S, Instance, logged_end
from tests.server.streams import LONG
from tests.server.wire import generate, infer_input, infer_values
from tests.server_process import MAX_BLOCKING
from tests.stopped import stopped
from voxcpm_client.server import TritonServer
from voxcpm_core.serving.poller import RUNNING_POLL_S

pytestmark = pytest.mark.server
MODEL = "voxcpm_blocking"
SAID = {"target_text": "Hello there.", "seed": 5, "max_length": 5, "inference_timesteps": 2, "format": "wav"}
MARGIN = 10  # a shared machine
Outputs = dict[str, Any]


@pytest.fixture
def instance(triton_server: TritonServer) -> Iterator[Instance]:
    with Instance(triton_server) as instance:
        instance.wait_until_idle()
        yield instance
        instance.wait_until_idle()


def over_grpc(server: TritonServer, inputs: dict[str, Any], request_id: str = "") -> Outputs:
    tensors = [infer_input(name, value) for name, value in inputs.items()]
    with grpcclient.InferenceServerClient(server.grpc_url) as client:
        return outputs_of(client.infer(MODEL, tensors, request_id=request_id))


def over_http(server: TritonServer, inputs: dict[str, Any], request_id: str = "") -> Outputs:
    tensors = []
    for name, value in inputs.items():
        kind, values = infer_values(name, value)
        tensors.append(httpclient.InferInput(name, list(values.shape), kind))
        tensors[-1].set_data_from_numpy(values)
    with httpclient.InferenceServerClient(server.http_url, network_timeout=GENEROUS_S) as client:
        return outputs_of(client.infer(MODEL, tensors, request_id=request_id))


def outputs_of(result: Any) -> Outputs:
    names = ("audio", "num_samples", "sample_rate", "chunk_index", "request_id", "is_last", "finish_reason", "seed")
    return {name: result.as_numpy(name).tolist()[0] for name in names}


def refused(server: TritonServer, inputs: dict[str, Any]) -> tuple[int, str]:
    """HTTP status and message of an /infer that fails."""
    with pytest.raises(InferenceServerException) as caught:
        over_http(server, inputs, "who-asks")
    return int(caught.value.status()), caught.value.message()


def test_the_same_bytes_as_voxcpm_over_every_protocol(triton_server: TritonServer):
    status, wanted = generate(triton_server, {**SAID, "stream": False, "encoding": "base64"})
    assert status == 200
    plain = [over_grpc(triton_server, SAID, "r1"), over_http(triton_server, SAID, "r1")]
    as_text = over_http(triton_server, {**SAID, "encoding": "base64"})
    assert as_text["audio"] == wanted["audio"].encode()
    assert plain[0] == plain[1]
    assert plain[0]["request_id"] == b"r1"
    assert {name: plain[0][name] for name in ("num_samples", "seed", "sample_rate", "chunk_index", "is_last")} == {
        name: wanted[name] for name in ("num_samples", "seed", "sample_rate", "chunk_index", "is_last")
    }
    body = json.dumps({**SAID, "encoding": "base64"})
    url = f"http://{triton_server.http_url}/v2/models/{MODEL}/generate"
    done = subprocess.run(["curl", "-s", "--fail-with-body", url, "-d", body], capture_output=True, check=True)
    assert json.loads(done.stdout)["audio"] == wanted["audio"]


def test_many_at_once_on_its_one_instance(instance: Instance):
    inputs = [{**LONG, "max_length": 9 + index % 3, "seed": index} for index in range(MAX_BLOCKING)]
    with ThreadPoolExecutor(MAX_BLOCKING) as callers:
        send = (over_grpc, over_http)
        with stopped([instance.status()["worker_pid"]]):  # until all are there
            asked = [
                callers.submit(send[index % 2], instance.server, each, f"many-{index}")
                for index, each in enumerate(inputs)
            ]
            instance.wait_until_it_waits(*[f"many-{index}" for index in range(MAX_BLOCKING)])
        instance.wait_for(running=MAX_BLOCKING)
        for index, each in enumerate(asked):
            answer = each.result(GENEROUS_S)
            assert answer["request_id"] == f"many-{index}".encode()
            assert (answer["seed"], answer["num_samples"]) == (index, (9 + index % 3) * 7680)


def test_a_cancelled_call_frees_its_place(instance: Instance):
    with grpcclient.InferenceServerClient(instance.server.grpc_url) as client:
        tensors = [infer_input(name, value) for name, value in LONG.items()]
        asked = client.async_infer(MODEL, tensors, lambda result, error: None, request_id="blocking-cancelled")
        instance.wait_for(running=1)
        asked.cancel()
        assert instance.wait_until_idle() < MARGIN * 2 * RUNNING_POLL_S
    assert logged_end(instance.server, "blocking-cancelled")[0] == "CANCELLED"


def test_who_hangs_up_over_http_is_not_noticed_but_its_deadline_is(instance: Instance):
    """Triton 2.51 tells a model of it only when it writes an answer, and there is one."""
    host, port = instance.server.http_url.split(":")
    connection = http.client.HTTPConnection(host, int(port))
    body = json.dumps({**LONG, "encoding": "base64", "deadline_ms": 900, "id": "hung-up"})
    connection.request("POST", f"/v2/models/{MODEL}/generate", body)
    instance.wait_for(running=1)
    connection.close()
    # Had it been noticed it would have ended long before, with CANCELLED.
    assert logged_end(instance.server, "hung-up")[0] == "DEADLINE_EXCEEDED"


def test_errors_have_their_codes(instance: Instance):
    server = instance.server
    for inputs, status, code in (
        ({"target_text": " "}, 400, "INVALID_TEXT"),
        ({"target_text": "x", "cfg_value": 99.0}, 400, "INVALID_PARAMETER"),
        ({"target_text": "x", "voice": "nobody"}, 404, "UNKNOWN_VOICE"),
        ({"target_text": "x", "model": "nobody"}, 400, "INVALID_PARAMETER"),
        ({**LONG, "deadline_ms": 200}, 400, "DEADLINE_EXCEEDED"),
    ):
        found, message = refused(server, inputs)
        assert message.startswith(f"[{code}] request who-asks: ")
        assert found == status, code


def test_overload_and_a_killed_engine(instance: Instance):
    """Those who are inside get INTERNAL, and who comes then NOT_READY, until there is an engine again."""
    with ThreadPoolExecutor(MAX_BLOCKING) as callers:
        inside = [callers.submit(refused, instance.server, LONG) for _ in range(MAX_BLOCKING)]
        instance.wait_for(running=MAX_BLOCKING)
        start_s = time.monotonic()
        status, message = refused(instance.server, LONG)
        assert time.monotonic() - start_s < 1.0
        assert (status, message.split("]")[0]) == (503, "[OVERLOADED")
        assert message.endswith("retry after 1000 ms")
        os.kill(instance.status()["worker_pid"], signal.SIGKILL)
        assert not wait(inside, GENEROUS_S).not_done
    for each in inside:
        status, message = each.result()
        assert (status, message.split("]")[0]) == (500, "[INTERNAL")
    status, message = refused(instance.server, LONG)
    assert (status, message.split("]")[0]) == (503, "[NOT_READY")
    instance.wait_for(ready=True)
    assert over_grpc(instance.server, SAID)["num_samples"] == 5 * 7680
