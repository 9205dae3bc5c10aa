"""What Triton says of the trace that a request belongs to."""

from __future__ import annotations

from typing import Any


def trace_context(request: Any) -> str:
    """JSON of W3C headers, as {"traceparent": "00-…"}; "" when Triton does not trace the request, or does otherwise."""
    try:
        context = request.trace().get_context()
    except Exception:  # before 24.04 there is none; speech does not need it
        return ""
    return context or ""
