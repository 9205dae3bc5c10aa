"""The report of a soak: JSON for machines, a page of text for people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.soak.flatness import Trend
from tests.soak.load import Load


def write_report(folder: Path, load: Load, trends: Sequence[Trend], num_samples: int, failures: Sequence[str]) -> str:
    """Write soak-report.json and soak-report.txt; returns the text. `failures` are those of the run as a whole."""
    report = {
        "requests": dict(load.sent),
        "seconds": round(load.seconds, 1),
        "samples": num_samples,
        "failures": [*load.failures, *failures],
        "trends": [{**asdict(trend), "is_flat": trend.is_flat} for trend in trends],
    }
    text = _text(load, trends, report["failures"])
    (folder / "soak-report.json").write_text(json.dumps(report, indent=1) + "\n")
    (folder / "soak-report.txt").write_text(text)
    return text


def _text(load: Load, trends: Sequence[Trend], failures: Sequence[str]) -> str:
    lines = [f"{load.sent.total()} requests in {load.seconds:.0f} s, {len(failures)} failures"]
    lines += [f"  {count:6} {name}" for name, count in load.sent.most_common()]
    lines += ["", f"{'median of the second and the last tenth':<40}{'':>10}{'':>10}{'may grow by':>14}"]
    for trend in trends:
        mark = "" if trend.is_flat else "  GREW"
        lines.append(f"  {trend.name:<38}{trend.early:>10.0f}{trend.late:>10.0f}{trend.tolerance:>14.0f}{mark}")
    lines += ["", *failures[:50]] if failures else []
    return "\n".join(lines) + "\n"
