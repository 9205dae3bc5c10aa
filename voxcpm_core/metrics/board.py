"""Values from any thread, told to Triton by one."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from voxcpm_core.faults import Log, place_of
from voxcpm_core.metrics.catalog import METRICS, Kind, Metric

_Tell = Callable[[list[float]], None]


class Record(Protocol):
    """Takes one value of a metric: an amount to add, a level, or an observation. Quick, and never raises."""

    def __call__(self, metric: Metric, value: float = 1.0, label_value: str = "") -> None: ...


def record_nothing(metric: Metric, value: float = 1.0, label_value: str = "") -> None:
    """Where there are no metrics."""


class Board:
    """All metrics of one instance.

    Telling Triton is a round trip to the server, so that `record` only notes. No two boards of a server may have the
    same labels at the same time: they would share their series, and the one that closes first would take it from the
    other, with which Triton crashes.
    """

    def __init__(self, pb_utils: Any, labels: Mapping[str, str], log: Log) -> None:
        """Raises whatever the server does where it has no metrics."""
        self._labels = dict(labels)
        self._log = log
        self._kinds: Any = pb_utils.MetricFamily
        self._has_histograms = hasattr(self._kinds, "HISTOGRAM")
        self._lock = threading.Lock()
        self._noted: defaultdict[tuple[Metric, str], list[float]] = defaultdict(list)
        self._has_failed = False
        self._families: dict[str, Any] = {}  # Triton forgets a family that nobody holds, and its metrics break
        self._tells: dict[tuple[Metric, str], _Tell] = {}
        for metric in METRICS:
            for value in metric.values:
                self._tells[metric, value] = self._series(metric, value)

    def record(self, metric: Metric, value: float = 1.0, label_value: str = "") -> None:
        with self._lock:
            self._noted[metric, label_value].append(value)

    def flush(self) -> None:
        """Tell Triton what was recorded. One thread at a time; never raises."""
        with self._lock:
            noted, self._noted = self._noted, defaultdict(list)
        for (metric, label_value), values in noted.items():
            try:
                tell = self._tells.get((metric, label_value))
                if tell is None:
                    tell = self._tells[metric, label_value] = self._series(metric, label_value)
                tell(values)
            except Exception as error:
                self._complain(error, metric)

    def close(self) -> None:
        """Take all series from the server; nothing may be recorded or flushed meanwhile or later."""
        self._tells.clear()  # before the families, or Triton complains
        self._families.clear()

    def _series(self, metric: Metric, label_value: str) -> _Tell:
        labels = {**self._labels, metric.label: label_value} if metric.label else self._labels
        if metric.kind is Kind.COUNTER:
            return _counter(self._family(metric.name, metric, "COUNTER").Metric(labels=labels))
        if metric.kind is Kind.GAUGE:
            return _gauge(self._family(metric.name, metric, "GAUGE").Metric(labels=labels))
        if self._has_histograms:
            family = self._family(metric.name, metric, "HISTOGRAM")
            return _histogram(family.Metric(labels=labels, buckets=list(metric.buckets)))
        total, count = (self._family(f"{metric.name}_{part}", metric, "COUNTER") for part in ("sum", "count"))
        return _sum_and_count(total.Metric(labels=labels), count.Metric(labels=labels))

    def _family(self, name: str, metric: Metric, kind: str) -> Any:
        if name not in self._families:
            self._families[name] = self._kinds(name=name, description=metric.meaning, kind=getattr(self._kinds, kind))
        return self._families[name]

    def _complain(self, error: Exception, metric: Metric) -> None:
        if not self._has_failed:
            self._log(f"metric {metric.name} is wrong from here on, and others may be: {place_of(error)}")
        self._has_failed = True


def _counter(series: Any) -> _Tell:
    return lambda amounts: series.increment(sum(amounts))


def _gauge(series: Any) -> _Tell:
    told: float | None = None

    def tell(levels: list[float]) -> None:
        nonlocal told
        if levels[-1] != told:
            series.set(levels[-1])
            told = levels[-1]

    return tell


def _histogram(series: Any) -> _Tell:
    def tell(observations: list[float]) -> None:
        for each in observations:
            series.observe(each)

    return tell


def _sum_and_count(total: Any, count: Any) -> _Tell:
    def tell(observations: list[float]) -> None:
        total.increment(sum(observations))
        count.increment(float(len(observations)))

    return tell
