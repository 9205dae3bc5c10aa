"""Spans of requests on a real server that traces: below Triton's own, whichever instance a request came by."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from tests.server_process import make_server
from tests.tracing.collector import Collector
from voxcpm_client.server import TritonServer, find_repository
from voxcpm_core.tracing.request import FIRST_AUDIO, QUEUE, REQUEST, STREAM

pytestmark = pytest.mark.server
MODELS: dict[str, dict[str, Any]] = {"voxcpm": {"stream": False}, "voxcpm_blocking": {}}  # and what one answer takes
TEXT = "A sentence that nobody but its listener hears"


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


@pytest.fixture(scope="module")
def server(collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    options = ("mode=opentelemetry", "level=TIMESTAMPS", "rate=1000", f"opentelemetry,url={collector.url}",
               "opentelemetry,bsp_schedule_delay=200")  # fmt: skip
    settings = {"VOXCPM_TRACE_URL": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "200"}
    with make_server(
        tmp_path_factory.mktemp("tracing") / "log", repository=find_repository(),
        arguments=tuple(f"--trace-config={option}" for option in options), **settings,
    ) as server:  # fmt: skip
        yield server


def ask(server: TritonServer, trace_id: str, model: str = "voxcpm", **inputs: Any) -> int:
    """POST /generate in the trace of that id, if any; the status."""
    body = {"target_text": TEXT, "max_length": 12, "ignore_stop": True, "format": "wav", **inputs}
    url = f"http://{server.http_url}/v2/models/{model}/generate"
    headers = {"traceparent": f"00-{trace_id}-00f067aa0ba902b7-01"} if trace_id else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as response:
            response.read()
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def id_of(model: str) -> str:
    return model.encode().hex().ljust(32, "0")[:32]


@pytest.mark.parametrize("model", MODELS)
def test_waiting_the_first_audio_and_the_rest_stand_below_triton_s_span(
    server: TritonServer, collector: Collector, model: str
):
    trace_id = id_of(model)
    before_ns = time.time_ns()
    assert ask(server, trace_id, model, **MODELS[model]) == 200
    whole = collector.wait_for(REQUEST, trace_id)
    assert before_ns <= whole.start_ns < whole.end_ns <= time.time_ns()
    assert whole.service == "voxcpm"
    assert whole.status == ""
    assert whole.attributes["voxcpm.finish_reason"] == "length"
    assert whole.attributes["voxcpm.audio_s"] == pytest.approx(12 * 0.16)
    parts = collector.below(whole)
    assert [part.name for part in parts] == [QUEUE, FIRST_AUDIO, STREAM]
    assert whole.start_ns <= parts[0].start_ns
    assert all(one.end_ns <= other.start_ns for one, other in pairwise(parts))
    assert parts[-1].end_ns == whole.end_ns
    assert collector.above(whole).service == "tritonserver"


def test_a_crowd_that_comes_by_all_instances_is_told_apart(server: TritonServer, collector: Collector):
    trace_ids = [f"{number:032x}" for number in range(1, 13)]
    with ThreadPoolExecutor(len(trace_ids)) as pool:
        assert set(pool.map(lambda trace_id: ask(server, trace_id, stream=False), trace_ids)) == {200}
    for trace_id in trace_ids:
        whole = collector.wait_for(REQUEST, trace_id)
        assert [part.trace_id for part in collector.below(whole)] == [trace_id] * 3


def test_an_error_is_the_span_s(server: TritonServer, collector: Collector):
    trace_id = "e" * 32
    assert ask(server, trace_id, target_text=" ") == 400
    whole = collector.wait_for(REQUEST, trace_id)
    assert whole.status == whole.attributes["voxcpm.error_code"] == "INVALID_TEXT"
    assert [part.name for part in collector.below(whole)] == [QUEUE]


def test_requests_that_triton_does_not_trace_have_no_spans_and_no_span_has_a_text(
    server: TritonServer, collector: Collector
):
    """Triton traces what comes with a trace, and of the rest one in so many."""
    for number in range(3):
        assert ask(server, "", seed=number, stream=False) == 200
    assert ask(server, "b" * 32, stream=False) == 200
    collector.wait_for(REQUEST, "b" * 32)
    asked = {f"{number:032x}" for number in range(1, 13)}
    given = {span.trace_id for span in collector.spans if span.name == REQUEST}
    assert given <= asked | {"b" * 32, "e" * 32} | set(map(id_of, MODELS))
    assert collector.raw
    assert not any(word.encode() in collector.raw for word in ("sentence", "listener"))
