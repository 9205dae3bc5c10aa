"""Dashboard, alerts and autoscaling name metrics and labels that exist."""

from __future__ import annotations

import json
import re
from typing import Any

import promql_parser
import pytest

from tests.deploy import manifests
from tests.deploy.manifests import DASHBOARD, DEPLOY
from tests.server.scraped import Scrape
from voxcpm_client.server import TritonServer
from voxcpm_core.metrics.catalog import LABELS, METRICS, Kind

# Triton's own that are used here, with their labels; those of the GPU are there where one is.
TRITON = {
    "nv_inference_pending_request_count": {"model", "version"},
    "nv_inference_request_failure": {"model", "version", "reason"},
}
TRITON_GPU = dict.fromkeys(
    ("nv_gpu_utilization", "nv_gpu_memory_used_bytes", "nv_gpu_memory_total_bytes"), {"gpu_uuid"}
)
SCRAPED = {"namespace", "pod"}  # by Prometheus' operator


def known() -> dict[str, set[str]]:
    """Labels by name of series."""
    series: dict[str, set[str]] = {**TRITON, **TRITON_GPU}
    for metric in METRICS:
        labels = {*LABELS, metric.label} - {""}
        if metric.kind is Kind.HISTOGRAM:
            series |= {f"{metric.name}_sum": labels, f"{metric.name}_count": labels}
            series[f"{metric.name}_bucket"] = {*labels, "le"}
        else:
            series[metric.name] = labels
    return series


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return found


def alerts() -> list[dict[str, Any]]:
    return [rule for group in manifests.one("PrometheusRule")["spec"]["groups"] for rule in group["rules"]]


def expressions() -> list[str]:
    targets = [target for panel in dashboard()["panels"] for target in panel["targets"]]
    (values,) = manifests.documents(DEPLOY / "adapter.yaml")
    queries = [rule["seriesQuery"] for rule in values["rules"]["custom"]]
    return [target["expr"] for target in targets] + [rule["expr"] for rule in alerts()] + queries


def selectors(expression: str) -> list[promql_parser.VectorSelector]:
    """What an expression reads; raises ValueError where it is no PromQL."""
    found: list[promql_parser.VectorSelector] = []

    def visit(node: promql_parser.Expr) -> bool:
        if isinstance(node, promql_parser.MatrixSelector):
            node = node.vector_selector
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)
        return True

    promql_parser.walk(promql_parser.parse(expression.replace("$__rate_interval", "5m")), visit)
    return found


def test_every_series_exists_and_has_the_labels_that_are_asked_for():
    series = known()
    assert len(expressions()) > 30
    for expression in expressions():
        read = selectors(expression)
        assert read, expression
        for selector in read:
            assert selector.name in series, expression
            assert {each.name for each in selector.matchers.matchers} <= series[selector.name] | SCRAPED, expression
        labels = set.intersection(*(series[str(selector.name)] for selector in read)) | SCRAPED
        for group in re.findall(r"by \(([^)]*)\)", expression):
            assert {name.strip() for name in group.split(",")} <= labels, expression


def test_every_metric_is_shown():
    read = {str(selector.name) for target in expressions() for selector in selectors(target)}
    shown = {re.sub(r"_(sum|count|bucket)$", "", name) for name in read}
    assert {metric.name for metric in METRICS} - shown == {"voxcpm_max_waiting_requests"}


def test_the_dashboard_is_one_of_grafana():
    board = dashboard()
    assert board["title"]
    assert board["schemaVersion"] >= 36
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    places = set()
    variables = {variable["name"] for variable in board["templating"]["list"]}
    for panel in board["panels"]:
        assert panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        places.add((place["x"], place["y"]))
        for target in panel["targets"]:
            assert set(re.findall(r"\$(\w+)", target["expr"])) <= variables | {"__rate_interval"}
    assert len(places) == len(ids), "panels lie on each other"


def test_alerts_say_what_is_wrong():
    assert len({rule["alert"] for rule in alerts()}) == len(alerts()) > 5
    for rule in alerts():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"].keys() == {"summary", "description"}


@pytest.mark.server
def test_triton_has_the_metrics_that_are_said_to_be_its_own(triton_server: TritonServer):
    scrape = Scrape(triton_server)
    for name, labels in TRITON.items():
        assert scrape.labels(name), name
        assert all(set(each) == labels for each in scrape.labels(name))
