"""The list of metrics, by Prometheus' rules."""

from __future__ import annotations

import re
from itertools import pairwise

from voxcpm_core.errors import ErrorCode
from voxcpm_core.metrics import catalog
from voxcpm_core.metrics.catalog import METRICS, Kind


def test_names():
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names) > 20
    for metric in METRICS:
        assert re.fullmatch(r"voxcpm_[a-z]+(_[a-z]+)*", metric.name)
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
        assert not metric.name.endswith(("_sum", "_count", "_bucket", "_ms", "_us"))
        assert metric.meaning


def test_every_metric_stands_in_the_list():
    named = [value for value in vars(catalog).values() if isinstance(value, catalog.Metric)]
    assert named == list(METRICS)


def test_buckets_ascend_and_are_those_of_histograms():
    for metric in METRICS:
        assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM)
        assert all(lower < upper for lower, upper in pairwise(metric.buckets))


def test_every_code_that_can_be_counted_is_there_from_the_start():
    counted = {*catalog.REJECTED.values, *catalog.FAILED.values, "CANCELLED"}
    assert counted == {code.value for code in ErrorCode}
    assert catalog.FINISHED.values == ("stop", "length")
