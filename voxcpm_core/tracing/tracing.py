"""An instance's way to the collector."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping
from concurrent.futures import TimeoutError
from contextlib import suppress
from typing import Protocol
from urllib.parse import urlsplit

from voxcpm_core.errors import ConfigError, shown
from voxcpm_core.faults import Log
from voxcpm_core.local.status import InstanceName
from voxcpm_core.threads import in_thread
from voxcpm_core.tracing.request import RequestSpans

SERVICE = "voxcpm"  # unless OTEL_SERVICE_NAME says otherwise
EXPORT_S = 2.0  # that one post may take, and that closing waits for the last one
REPORTED_AGAIN_S = 60.0


class Tracing(Protocol):
    def request(self, context: str, request_id: str) -> RequestSpans | None:
        """Of a request with that `trace_context`; None when it is not traced."""

    def close(self) -> None: ...


class NoTracing:
    """Where no collector is named."""

    def request(self, context: str, request_id: str) -> None:
        return None

    def close(self) -> None:
        return


def start_tracing(url: str, name: InstanceName, log: Log) -> Tracing:
    """`url`: where the collector takes OTLP over HTTP, "" for nowhere.

    Raises ConfigError for what is no such address, without the libraries, and for what they refuse of OTEL_*.
    """
    if not url:
        return NoTracing()
    if not _is_http(url):
        raise ConfigError(f"trace_url: expected an address as http://collector:4318/v1/traces, got {shown(url)}")
    try:
        return CollectorTracing(url, name, log)
    except ImportError as error:
        raise ConfigError(f"trace_url: {error}; install 'voxcpm-triton[tracing]'") from None
    except (ValueError, RuntimeError) as error:
        raise ConfigError(f"trace_url: OpenTelemetry's own settings, OTEL_*: {error}") from None


class CollectorTracing:
    """Spans leave in a thread of the library's, some at once. A collector that is not there costs nothing but them."""

    def __init__(self, url: str, name: InstanceName, log: Log) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        _tell(log)
        resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", SERVICE)})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(url, timeout=EXPORT_S)))
        self._tracer = self._provider.get_tracer("voxcpm_core")
        self._extract = TraceContextTextMapPropagator().extract
        self._attributes = {
            "voxcpm.model": name.model, "voxcpm.version": name.version, "voxcpm.instance": name.instance
        }  # fmt: skip

    def request(self, context: str, request_id: str) -> RequestSpans | None:
        headers = _headers(context)
        if not headers:
            return None
        attributes = {**self._attributes, "voxcpm.request_id": request_id}
        return RequestSpans(self._tracer, self._extract(headers), attributes)

    def close(self) -> None:
        """Send what is left, as far as the collector takes it in time."""
        with suppress(TimeoutError):
            in_thread(self._provider.shutdown, "voxcpm-tracing").result(EXPORT_S)


def _is_http(url: str) -> bool:
    """Whether requests can be sent to there; the libraries would say no more than that they cannot, once a minute."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and " " not in url and parts.port != 0
    except ValueError:  # brackets that do not close, a port that is none
        return False


def _headers(context: str) -> Mapping[str, str]:
    """Callers may have had a say in them, and a request must not fail by what is only about watching it."""
    try:
        headers = json.loads(context)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(headers, dict):
        return {}
    texts = {name: value for name, value in headers.items() if isinstance(value, str)}
    return texts if "traceparent" in texts else {}


def _tell(log: Log) -> None:
    """Have the libraries' complaints in Triton's log, each kind a line a minute."""
    logger = logging.getLogger("opentelemetry")
    logger.propagate = False
    logger.handlers[:] = [_Reports(log)]


class _Reports(logging.Handler):
    """Of one kind are those from one place in the code: what they say may have a figure in it that changes."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log
        self._again_s: dict[tuple[str, int], float] = {}  # by file and line

    def emit(self, record: logging.LogRecord) -> None:
        place = record.pathname, record.lineno
        if time.monotonic() >= self._again_s.get(place, 0.0):
            self._again_s[place] = time.monotonic() + REPORTED_AGAIN_S
            self._log(f"tracing: {record.getMessage()}")
