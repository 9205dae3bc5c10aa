"""Tracing where its collector or its libraries are missing, and spans beside a clock that jumps."""

from __future__ import annotations

import json
import logging
import re
import socket
import sys
import time
from types import SimpleNamespace

import pytest

from tests.tracing.collector import Collector
from voxcpm_core.errors import ConfigError, ErrorCode
from voxcpm_core.local.status import InstanceName
from voxcpm_core.tracing import tracing as tracing_module
from voxcpm_core.tracing.context import trace_context
from voxcpm_core.tracing.request import QUEUE, REQUEST
from voxcpm_core.tracing.tracing import EXPORT_S, REPORTED_AGAIN_S, start_tracing

NAME = InstanceName("voxcpm", "1", "voxcpm_0")
TRACE_ID = "c" * 32
CONTEXT_PARENT = f"00-{TRACE_ID}-00f067aa0ba902b7-01"
CONTEXT = json.dumps({"traceparent": CONTEXT_PARENT})
HOUR_NS = 3_600_000_000_000


def test_without_an_address_nothing_is_traced():
    assert start_tracing("", NAME, print).request(CONTEXT, "r1") is None


@pytest.mark.parametrize(
    "context", ["", "{}", "[]", "no JSON", '{"tracestate": "a=b"}', '{"traceparent": 5}', "[" * 100_000]
)
def test_without_a_trace_there_are_no_spans(context):
    with Collector() as collector:
        tracing = start_tracing(collector.url, NAME, print)
        assert tracing.request(context, "r1") is None
        tracing.close()


def test_a_server_that_has_no_trace_of_a_request():
    assert trace_context(object()) == ""


def test_libraries_that_are_missing_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigError, match=r"trace_url: .*; install 'voxcpm-triton\[tracing\]'"):
        start_tracing("http://127.0.0.1:4318/v1/traces", NAME, print)


@pytest.mark.parametrize(
    "url", ["collector", "collector:4318", "ftp://collector/v1", "http://", "http://[::1", "http://a:b/", "http://a b/"]
)
def test_an_address_that_is_none_is_shown(url):
    with pytest.raises(ConfigError, match=rf"^trace_url: expected an address as http://.*, got '{re.escape(url)}'$"):
        start_tracing(url, NAME, print)


@pytest.mark.parametrize(
    ("variable", "value"), [("OTEL_BSP_MAX_QUEUE_SIZE", "-1"), ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "many")]
)
def test_what_the_libraries_refuse_of_their_settings_is_told(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=r"^trace_url: OpenTelemetry's own settings, OTEL_\*: .* integer"):
        start_tracing("http://127.0.0.1:4318/v1/traces", NAME, print)


@pytest.mark.parametrize("state", [5, "a=b," * 3_000])
@pytest.mark.parametrize("parent", [CONTEXT_PARENT, "x" * 10_000, "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_headers_that_are_broken_hurt_no_request(parent, state):
    with Collector() as collector:
        tracing = start_tracing(collector.url, NAME, lambda line: None)
        spans = tracing.request(json.dumps({"traceparent": parent, "tracestate": state}), "r1")
        spans.finished("stop")
        tracing.close()
        assert [span.name for span in collector.spans] == [QUEUE, REQUEST]


def test_a_collector_that_is_not_there_is_told_of_and_closing_waits_for_it_a_moment():
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        lines: list[str] = []
        tracing = start_tracing(f"http://127.0.0.1:{taken.getsockname()[1]}/v1/traces", NAME, lines.append)
        for _ in range(3):
            tracing.request(CONTEXT, "r1").finished("stop")
        start_s = time.monotonic()
        tracing.close()
        assert time.monotonic() - start_s < 5 * EXPORT_S
        assert lines
        assert all(line.startswith("tracing: ") and "Traceback" not in line for line in lines)
        kinds = [line.split()[1] for line in lines]
        assert len(set(kinds)) == len(kinds), "that it is tried again, and that it was in vain, each once"


def test_each_kind_of_complaint_is_a_line_a_minute(monkeypatch):
    lines: list[str] = []
    now_s = time.monotonic()
    monkeypatch.setattr(tracing_module, "time", SimpleNamespace(monotonic=lambda: now_s))
    tracing = start_tracing("http://127.0.0.1:4318/v1/traces", NAME, lines.append)
    library = logging.getLogger("opentelemetry.sdk")
    for minute in range(2):
        for second in range(3):
            library.warning("Transient error, retrying in %ss", second)
            library.error("Failed to export span batch code: %s", 400 + second)
            now_s += 1
        assert lines[2 * minute :] == [
            "tracing: Transient error, retrying in 0s", "tracing: Failed to export span batch code: 400",
        ]  # fmt: skip
        now_s += REPORTED_AGAIN_S
    tracing.close()


def test_a_slot_that_comes_after_the_end_opens_no_span():
    with Collector() as collector:
        lines: list[str] = []
        tracing = start_tracing(collector.url, NAME, lines.append)
        spans = tracing.request(CONTEXT, "r1")
        spans.failed(ErrorCode.CANCELLED)
        spans.admitted()
        tracing.close()
        assert [span.name for span in collector.spans] == [QUEUE, REQUEST]
        assert lines == []


def test_a_wall_clock_that_jumps_moves_no_span_that_runs(monkeypatch):
    with Collector() as collector:
        tracing = start_tracing(collector.url, NAME, print)
        spans, before_ns = tracing.request(CONTEXT, "r1"), time.time_ns()
        monkeypatch.setattr(time, "time_ns", lambda: before_ns - HOUR_NS)
        spans.failed(ErrorCode.CANCELLED)
        tracing.close()
        whole = collector.wait_for(REQUEST, TRACE_ID)
        assert before_ns <= whole.end_ns < before_ns + HOUR_NS
        assert (whole.attributes["voxcpm.error_code"], whole.status) == ("CANCELLED", "")
        assert [part.name for part in collector.below(whole)] == [QUEUE]
