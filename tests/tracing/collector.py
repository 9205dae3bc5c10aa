"""A collector of traces: takes OTLP over HTTP, from the model as protobuf and from tritonserver as JSON."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

WITHIN_S = 30.0


class Span(NamedTuple):
    """One that has arrived; ids in hexadecimal."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    status: str  # what went wrong; "" for nothing


class Collector:
    """Listens until its `with` block ends."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.raw = b""  # all that the model has sent
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collector._take(self.headers["Content-Type"], self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_arguments: object) -> None:
                """Nothing: pytest would show it."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/traces"

    def __enter__(self) -> Collector:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def wait_for(self, name: str, trace_id: str) -> Span:
        """The span of that name and trace."""
        return self._first(lambda span: (span.name, span.trace_id) == (name, trace_id), f"{name} of {trace_id}")

    def above(self, span: Span) -> Span:
        """Its parent."""
        return self._first(lambda other: other.span_id == span.parent_id, f"parent of {span}")

    def below(self, span: Span) -> list[Span]:
        """Its children, which end before it and so arrive before it."""
        return [other for other in self.spans if other.parent_id == span.span_id]

    def _first(self, wanted: Callable[[Span], bool], what: str) -> Span:
        end_s = time.monotonic() + WITHIN_S
        while True:
            found = next(filter(wanted, list(self.spans)), None)
            if found is not None:
                return found
            assert time.monotonic() < end_s, f"no {what}, but {[each.name for each in self.spans]}"
            time.sleep(0.02)

    def _take(self, kind: str, body: bytes) -> None:
        if kind == "application/json":
            self.spans += _spans_of_triton(json.loads(body))
        else:
            self.raw += body
            self.spans += _spans_of_model(ExportTraceServiceRequest.FromString(body))


def _spans_of_model(exported: ExportTraceServiceRequest) -> list[Span]:
    return [
        Span(
            _values(resource.resource.attributes)["service.name"], span.name, span.trace_id.hex(), span.span_id.hex(),
            span.parent_span_id.hex(), span.start_time_unix_nano, span.end_time_unix_nano, _values(span.attributes),
            span.status.message,
        )
        for resource in exported.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]  # fmt: skip


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


def _spans_of_triton(exported: dict[str, Any]) -> list[Span]:
    return [
        Span(
            "tritonserver", span["name"], span["traceId"], span["spanId"], span.get("parentSpanId", ""),
            int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"]), {}, "",
        )
        for resource in exported["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]  # fmt: skip
