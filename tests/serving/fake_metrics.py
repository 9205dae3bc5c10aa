"""Metrics of a stand-in for Triton, with the server's rules: kept families, buckets for histograms alone."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

Labels = tuple[tuple[str, str], ...]


class FakeMetrics:
    """The metrics of one server; `kind()` is what a stub has as `pb_utils.MetricFamily`."""

    def __init__(self, has_histograms: bool = True, is_off: bool = False) -> None:
        self.has_histograms = has_histograms
        self.is_off = is_off
        self.fails = False
        self.num_calls = 0
        self.values: dict[tuple[str, Labels], float] = {}
        self.observed: dict[tuple[str, Labels], list[float]] = {}
        self.kinds: dict[str, str] = {}
        self.violations: list[str] = []

    def kind(self) -> type:
        server = self

        class MetricFamily(_Family):
            COUNTER, GAUGE = "counter", "gauge"

            def __init__(self, name: str, description: str, kind: str) -> None:
                if server.is_off:
                    raise RuntimeError("metrics are disabled")
                assert server.kinds.setdefault(name, kind) == kind
                self.server, self.name, self.kind = server, name, kind

        if self.has_histograms:
            MetricFamily.HISTOGRAM = "histogram"  # type: ignore[attr-defined]
        return MetricFamily

    def value(self, name: str, **labels: str) -> float:
        """The sum over all series that have these labels; raises KeyError where there is none."""
        found = [value for (each, having), value in self.values.items()
                 if each == name and labels.items() <= dict(having).items()]
        if not found:
            raise KeyError(name)
        return sum(found)

    def observations(self, name: str) -> list[float]:
        (found,) = [values for (each, _), values in self.observed.items() if each == name]
        return found


class _Family:
    server: FakeMetrics
    name: str
    kind: str

    def Metric(self, labels: Mapping[str, str], buckets: list[float] | None = None) -> _Series:
        assert (buckets is not None) == (self.kind == "histogram")
        assert buckets is None or buckets == sorted(set(buckets))
        return _Series(self, labels)


class _Series:
    def __init__(self, family: _Family, labels: Mapping[str, str]) -> None:
        self._family = weakref.ref(family)
        self._server = family.server
        self._key = family.name, tuple(sorted(labels.items()))
        store: dict[Any, Any] = self._server.observed if family.kind == "histogram" else self._server.values
        if self._key in store:
            self._server.violations.append("two series with the same labels")
        store[self._key] = [] if family.kind == "histogram" else 0.0

    def increment(self, amount: float) -> None:
        assert self._called().kind == "counter"
        assert amount >= 0
        self._server.values[self._key] += amount

    def set(self, level: float) -> None:
        assert self._called().kind == "gauge"
        self._server.values[self._key] = level

    def observe(self, value: float) -> None:
        assert self._called().kind == "histogram"
        self._server.observed[self._key].append(value)

    def _called(self) -> _Family:
        self._server.num_calls += 1
        family = self._family()
        if self._server.fails:
            raise RuntimeError("the server does not answer: SECRET")
        if family is None:
            raise RuntimeError("the family was not kept")
        return family

    def __del__(self) -> None:
        if self._family() is None:
            self._server.violations.append("the family went before its metric")
        self._server.values.pop(self._key, None)
        self._server.observed.pop(self._key, None)
