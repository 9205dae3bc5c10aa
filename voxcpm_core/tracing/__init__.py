"""Spans of requests that Triton traces, sent to an OpenTelemetry collector."""
