"""A picture of rows: how TTFA is distributed, and how load and TTFA went over time."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from voxcpm_client.load.row import Row


def require_matplotlib() -> None:
    """Raise ValueError where it is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError("--picture needs matplotlib, which is not installed: pip install 'voxcpm-triton[picture]'")


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Write a PNG. Raises OSError where it cannot be written."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 9), layout="constrained")
    FigureCanvasAgg(figure)  # draws without a display
    distribution, running, over_time = figure.subplots(3, 1)
    for row in rows:
        _draw_distribution(distribution, row)
        _draw_running(running, row)
        _draw_ttfa(over_time, row)
    distribution.set(xlabel="TTFA, ms", ylabel="share of requests", ylim=(0, 1), title="time to first audio")
    running.set(xlabel="seconds", ylabel="requests under way", title="load")
    over_time.set(xlabel="seconds at sending", ylabel="TTFA, ms")
    for axis in (distribution, running, over_time):
        axis.grid(alpha=0.3)
        axis.legend(loc="best", fontsize="small")
    figure.savefig(path, format="png", dpi=100, metadata={"Software": None})


def _draw_distribution(axis: Any, row: Row) -> None:
    ttfa_ms = np.sort([outcome.ttfa_ms for outcome in row.outcomes if outcome.ttfa_ms is not None])
    axis.step(ttfa_ms, np.arange(1, len(ttfa_ms) + 1) / max(1, len(ttfa_ms)), where="post", label=str(row.pattern))


def _draw_running(axis: Any, row: Row) -> None:
    sent_s = [outcome.sent_s for outcome in row.outcomes]
    ended_s = [outcome.ended_s for outcome in row.outcomes]
    at_s = np.array(sent_s + ended_s) - row.begin_s
    changes = np.array([1] * len(sent_s) + [-1] * len(ended_s))
    order = np.argsort(at_s, kind="stable")
    axis.step(at_s[order], np.cumsum(changes[order]), where="post", label=str(row.pattern))


def _draw_ttfa(axis: Any, row: Row) -> None:
    heard = [outcome for outcome in row.outcomes if outcome.ttfa_ms is not None]
    sent_s = [outcome.sent_s - row.begin_s for outcome in heard]
    axis.plot(sent_s, [outcome.ttfa_ms for outcome in heard], ".", label=str(row.pattern))
