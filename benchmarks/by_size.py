"""The command line of benchmarks that measure one released size after another."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.card import describe
from benchmarks.machine import as_line
from voxcpm_core.checkpoint.releases import RELEASES

# size, folder for its checkpoint, numbers of streams -> results
Measure = Callable[[str, Path, list[int]], Any]


def run_by_size(description: str | None, streams: Sequence[int], measure: Measure) -> None:
    """Measure each size that is asked for, and write what there is after each."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--sizes", nargs="*", default=list(RELEASES))
    parser.add_argument("--streams", nargs="*", type=int, default=list(streams))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results: dict[str, Any] = {"machine": describe(), "models": []}
    print(as_line(results["machine"]))
    for size in arguments.sizes:
        with tempfile.TemporaryDirectory() as scratch:
            results["models"].append(measure(size, Path(scratch) / size, arguments.streams))
        torch.cuda.empty_cache()
        if arguments.json:
            arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
