"""Every error code over gRPC, /generate and /generate_stream. A full queue is Triton's own: see test_gate_queue."""

from __future__ import annotations

import base64
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np
import pytest

from tests.server.instance import GENEROUS_S, Instance, logged_end
from tests.server.streams import LONG, GrpcStream, HttpStream
from tests.server.wire import call, generate, generate_stream
from tests.server_process import make_server, require_installation
from voxcpm_client.server import TritonServer

pytestmark = pytest.mark.server
NUM_RUNNING = 3
ENDED_S = 2.0  # after the worker's death; five times that on a shared machine
REQUEST_ID = "who-asks"

# The HTTP status, None over gRPC, and the error's text.
Refusal = tuple[int | None, str]


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    require_installation(dict(os.environ))
    log_file = tmp_path_factory.mktemp("codes") / "tritonserver.log"
    with make_server(log_file, VOXCPM_MAX_RUNNING=str(NUM_RUNNING)) as server, Instance(server) as instance:
        yield instance


def over_grpc(server: TritonServer, inputs: dict[str, Any]) -> Refusal:
    tensors = {name: np.atleast_2d(value) if name.endswith("_latents") else value for name, value in inputs.items()}
    stream = GrpcStream(server, tensors, REQUEST_ID)
    stream.finish()
    assert len(stream.errors) == 1
    return None, stream.errors[0]


def over_generate(server: TritonServer, inputs: dict[str, Any]) -> Refusal:
    status, answer = generate(server, {"encoding": "base64", **inputs, "stream": False, "id": REQUEST_ID})
    return status, answer["error"]


def over_generate_stream(server: TritonServer, inputs: dict[str, Any]) -> Refusal:
    status, events = generate_stream(server, {"encoding": "base64", **inputs, "id": REQUEST_ID})
    assert ["error" in event for event in events] == [False] * (len(events) - 1) + [True]
    return status, events[-1]["error"]


PROTOCOLS: dict[str, tuple[Callable[[TritonServer, dict[str, Any]], Refusal], int | None]] = {
    "grpc": (over_grpc, None), "generate": (over_generate, 400), "generate_stream": (over_generate_stream, 400),
}
LATE_STATUS = {"grpc": None, "generate": 400, "generate_stream": 200}  # of an error once chunks were written
not_audio = base64.b64encode(b"this is no audio file").decode()
BAD_INPUTS: dict[str, dict[str, Any]] = {
    "INVALID_TEXT": {"target_text": " \n"},
    "INVALID_AUDIO": {"target_text": "x", "prompt_audio": not_audio, "prompt_text": "x", "encoding": "base64"},
    "INVALID_LATENTS": {"target_text": "x", "prompt_latents": [0.5] * 7, "prompt_text": "x"},
    "INVALID_PARAMETER": {"target_text": "x", "cfg_value": 99.0},
    "CONFLICTING_INPUTS": {"target_text": "x", "prompt_text": "alone"},
    "TOO_LARGE": {"target_text": "word " * 20_000},
    "UNKNOWN_VOICE": {"target_text": "x", "voice": "nobody"},
    "UNKNOWN_LORA": {"target_text": "x", "lora": "nobody"},
}


def check(refusal: Refusal, code: str, status: int | None) -> None:
    found_status, message = refusal
    assert found_status == status
    assert re.fullmatch(rf"\[{code}\] request {REQUEST_ID}: [^/\n]+", message), message


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("code", BAD_INPUTS)
def test_bad_inputs(instance: Instance, code: str, protocol: str):
    send, status = PROTOCOLS[protocol]
    check(send(instance.server, BAD_INPUTS[code]), code, status)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_deadline_before_the_first_chunk(instance: Instance, protocol: str):
    send, status = PROTOCOLS[protocol]
    running = [GrpcStream(instance.server, LONG) for _ in range(NUM_RUNNING)]
    instance.wait_for(running=NUM_RUNNING)
    check(send(instance.server, {**LONG, "deadline_ms": 200}), "DEADLINE_EXCEEDED", status)
    for stream in running:
        stream.leave()
    instance.wait_until_idle()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_deadline_in_the_middle(instance: Instance, protocol: str):
    send, _ = PROTOCOLS[protocol]
    check(send(instance.server, {**LONG, "deadline_ms": 1000}), "DEADLINE_EXCEEDED", LATE_STATUS[protocol])
    instance.wait_until_idle()


@contextmanager
def running_over_each_protocol(instance: Instance) -> Iterator[dict[str, Future[Refusal]]]:
    """Endless requests that have had chunks."""
    num_patches = instance.status()["num_patches"]
    with ThreadPoolExecutor(len(PROTOCOLS)) as callers:
        running = {name: callers.submit(send, instance.server, LONG) for name, (send, _) in PROTOCOLS.items()}
        instance.wait_for(running=NUM_RUNNING)
        instance.wait(lambda now: now["num_patches"] >= num_patches + 5 * NUM_RUNNING)
        time.sleep(0.5)
        yield running


def check_late(running: dict[str, Future[Refusal]], code: str) -> None:
    for name, refusal in running.items():
        check(refusal.result(GENEROUS_S), code, LATE_STATUS[name])


def test_requests_that_somebody_cancels_by_their_id(instance: Instance):
    with running_over_each_protocol(instance) as running:
        assert instance.cancel(REQUEST_ID) == NUM_RUNNING
        check_late(running, "CANCELLED")
    instance.wait_until_idle()


def test_who_cancels_is_told_by_grpc_and_the_log_has_the_code(instance: Instance):
    over_grpc = GrpcStream(instance.server, LONG, "cancelled-grpc")
    assert over_grpc.next_chunk()
    over_grpc.cancel()
    with pytest.raises(grpc.RpcError) as ended:
        over_grpc.finish()
    assert ended.value.code() is grpc.StatusCode.CANCELLED
    over_http = HttpStream(instance.server, {**LONG, "id": "cancelled-http"})
    assert "audio" in (over_http.next_event() or {})
    over_http.leave()
    instance.wait_until_idle()
    for request_id in ("cancelled-grpc", "cancelled-http"):
        assert logged_end(instance.server, request_id)[0] == "CANCELLED"


@pytest.mark.parametrize("ended_s", [5 * ENDED_S, pytest.param(ENDED_S, marks=pytest.mark.soak)])
def test_a_killed_worker_is_internal_then_not_ready_then_back(instance: Instance, ended_s: float):
    before = instance.status()
    with running_over_each_protocol(instance) as running:
        killed_s = time.monotonic()
        os.kill(before["worker_pid"], signal.SIGKILL)
        check_late(running, "INTERNAL")
        assert time.monotonic() - killed_s < ended_s
    check_refused_for_now(instance, "NOT_READY")
    status = instance.status()
    assert (status["ready"], status["running"], status["pages_used"]) == (False, 0, 0)
    instance.wait_for(ready=True, timeout_s=GENEROUS_S)
    status = instance.status()
    assert status["num_restarts"] == before["num_restarts"] + 1
    assert status["worker_pid"] not in (0, before["worker_pid"])
    assert call(instance.server, max_length=1).errors == []


def check_refused_for_now(instance: Instance, code: str) -> None:
    with ThreadPoolExecutor(len(PROTOCOLS)) as callers:
        refused = {name: callers.submit(send, instance.server, LONG) for name, (send, _) in PROTOCOLS.items()}
    for name, (_, status) in PROTOCOLS.items():
        refusal = refused[name].result()
        check(refusal, code, status)
        assert re.search(r"retry after \d+ ms$", refusal[1])


def test_a_drain_refuses_who_comes_and_ends_who_is_there(instance: Instance):
    """Last in this file: only loading the model again ends it."""
    with running_over_each_protocol(instance) as running:
        instance.drain(deadline_ms=1500)
        check_refused_for_now(instance, "DRAINING")
        for send, status in PROTOCOLS.values():
            check(send(instance.server, BAD_INPUTS["INVALID_TEXT"]), "INVALID_TEXT", status)
        check_late(running, "DRAINING")
    instance.wait_until_idle()
