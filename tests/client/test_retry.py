"""Requests that are sent again, and those that are not."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.server_process import DOUBLE_REPOSITORY
from voxcpm_client import Client, Speech, errors
from voxcpm_client.errors import VoxError
from voxcpm_client.retry import Attempts
from voxcpm_client.server import TritonServer


def _synthesize(client: Client, text: str, **options: Any) -> Speech:
    return client.synthesize(text, **options)


def _asynthesize(client: Client, text: str, **options: Any) -> Speech:
    return asyncio.run(client.asynthesize(text, **options))


both = pytest.mark.parametrize("synthesize", [_synthesize, _asynthesize], ids=["sync", "async"])
Synthesize = Callable[..., Speech]


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A request id that no other test uses."""
    return request.node.name


@pytest.mark.parametrize(
    ("error", "is_retried"),
    [
        (errors.ServerUnavailable("x"), True),
        (errors.ConnectionLost("x"), True),
        (errors.NotReady("x"), True),
        (errors.Overloaded("x"), True),
        (errors.Draining("x"), True),
        (errors.UnknownModel("x"), False),
        (errors.InvalidText("x"), False),
        (errors.InternalError("x"), False),
        (errors.StubUnhealthy("x"), False),
        (errors.QueueTimeout("x"), False),
        (errors.DeadlineExceeded("x"), False),
        (errors.Cancelled("x"), False),
        (errors.StreamBroken("x"), False),
        (errors.GapTimeout("x"), False),
    ],
)
def test_which_errors_are_worth_another_attempt(error: VoxError, is_retried: bool) -> None:
    assert (Attempts(1, None).delay_s(error, num_chunks=0) is not None) == is_retried


def test_waits_grow_and_end() -> None:
    attempts = Attempts(8, None)
    delays = [attempts.delay_s(errors.NotReady("x"), 0) for _ in range(9)]
    assert delays.pop() is None
    for delay_s, most_s in zip(delays, (0.25, 0.5, 1, 2, 4, 4, 4, 4), strict=True):
        assert delay_s is not None
        assert most_s / 2 <= delay_s <= most_s


def test_the_server_s_wish_is_honoured() -> None:
    assert Attempts(1, None).delay_s(errors.NotReady("starting; retry after 1500 ms"), 0) == 1.5


def test_a_wait_that_does_not_fit_is_not_begun() -> None:
    assert Attempts(1, 1.0).delay_s(errors.NotReady("starting; retry after 1500 ms"), 0) is None


def test_never_after_a_chunk() -> None:
    assert Attempts(1, None).delay_s(errors.ConnectionLost("x"), num_chunks=1) is None


@pytest.mark.server
@both
def test_a_server_that_is_not_ready_at_first(double_server: TritonServer, synthesize: Synthesize, name: str) -> None:
    client = Client(url=double_server.grpc_url, model="double", retries=2)
    speech = synthesize(client, f"flaky: 2 [NOT_READY] request {name}: starting; retry after 10 ms", request_id=name)
    assert speech.audio == b"3"


@pytest.mark.server
@both
def test_retries_run_out(double_server: TritonServer, synthesize: Synthesize, name: str) -> None:
    client = Client(url=double_server.grpc_url, model="double", retries=1)
    with pytest.raises(errors.Draining, match="leaving"):
        synthesize(client, f"flaky: 2 [DRAINING] request {name}: leaving", request_id=name)
    assert synthesize(client, "flaky: 2 [DRAINING] x", request_id=name).audio == b"3", "it was sent twice before"


@pytest.mark.server
def test_all_attempts_together_keep_to_the_time(double_server: TritonServer, name: str) -> None:
    client = Client(url=double_server.grpc_url, model="double", retries=100, timeout_s=1.5)
    started_s = time.monotonic()
    with pytest.raises((errors.NotReady, errors.DeadlineExceeded)):  # the latter where time ends during an attempt
        client.synthesize("flaky: 1000 [NOT_READY] x", request_id=name)
    assert time.monotonic() - started_s < 2 * 1.5, "a thousand would take an hour"


@pytest.mark.server
def test_a_later_attempt_may_queue_for_what_is_left(double_server: TritonServer) -> None:
    request_time_s = 20.0
    client = Client(url=double_server.grpc_url, model="double", timeout_s=request_time_s)
    sent = json.loads(next(client.stream("echo")).audio)
    assert 0 < sent["timeout_us"] <= request_time_s * 1e6


@pytest.mark.server
def test_a_server_that_restarts(tmp_path: Path, double_server: TritonServer) -> None:
    """A client keeps its connection, and finds the new server at the old address."""
    with TritonServer(DOUBLE_REPOSITORY, log_file=tmp_path / "first.log") as first:
        client = Client(url=first.grpc_url, model="double", retries=0)
        for synthesize in (_synthesize, _asynthesize):
            assert synthesize(client, "latents").audio == b"ab"
    for synthesize in (_synthesize, _asynthesize):
        with pytest.raises(errors.ServerUnavailable, match="no answer"):
            synthesize(client, "latents")
    patient = Client(url=first.grpc_url, model="double", retries=50)
    waiting: list[bytes] = []
    waiters = [
        threading.Thread(target=lambda synthesize=synthesize: waiting.append(synthesize(patient, "latents").audio))
        for synthesize in (_synthesize, _asynthesize)
    ]
    for waiter in waiters:
        waiter.start()
    port = int(first.grpc_url.rsplit(":", 1)[1])
    with TritonServer(DOUBLE_REPOSITORY, log_file=tmp_path / "second.log", grpc_port=port):
        for waiter in waiters:
            waiter.join(timeout=20)
        for synthesize in (_synthesize, _asynthesize):
            assert synthesize(client, "latents").audio == b"ab"
    assert waiting == [b"ab", b"ab"]
