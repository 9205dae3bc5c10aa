"""What listeners met, from a perf_analyzer profile export: `python -m benchmarks.perf_export FILE...`.

perf_analyzer's own latency is that of the last response; this prints the time to the first audio, gaps and RTF.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

# Outputs that a response does not have are exported with what lay in memory; as a number that may be no JSON.
_STRAY_NUMBERS = re.compile(r'(?<=[{,])"(latents|vae_context|bitrate)":[^,}]*')
# Raw bytes are exported as a string with escapes that are not always valid JSON; nothing here needs them.
# Written so that runs of plain characters are one step: that takes a fifth of the time, and exports have 100 MB.
_BYTES = re.compile(r'(?<=[{,])"(audio|stream_id)":"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NS_PER_MS = 1e6
MAX_ATTEMPTS = 3  # of exports of six requests, one in eighty is incomplete


class IncompleteExport(ValueError):
    """perf_analyzer stopped writing in the midst, without a word and with status 0.

    It does so where the memory that it exports for an absent float output happens to be no finite number.
    """


@dataclass(frozen=True)
class Heard:
    """One request as its caller met it."""

    ttfa_ms: float  # from sending to the first audio
    gaps_ms: tuple[float, ...]  # between chunks
    audio_s: float
    rtf: float  # wall time to the last audio over audio time


@dataclass(frozen=True)
class Load:
    """The requests of one concurrency."""

    clients: int
    requests: tuple[Heard, ...]


def read_export(file: Path) -> list[Load]:
    """Every load level of a `--profile-export-file`, which holds raw audio and so is no UTF-8.

    Raises IncompleteExport where its end is missing.
    """
    text = _BYTES.sub(r'"\1":""', file.read_text(encoding="latin-1"))
    text = _STRAY_NUMBERS.sub(r'"\1":0', text)
    try:
        experiments = json.loads(text, strict=False)["experiments"]
    except json.JSONDecodeError:
        raise IncompleteExport(f"{file} has no end: perf_analyzer wrote a part of it; run it again") from None
    return [Load(each["experiment"]["value"], tuple(map(_heard, each["requests"]))) for each in experiments]


def complete_export(run: Callable[[], object], file: Path) -> list[Load]:
    """What `run` exports to the file, run again where it is incomplete. Raises IncompleteExport after the last time."""
    for _ in range(MAX_ATTEMPTS - 1):
        run()
        try:
            return read_export(file)
        except IncompleteExport as error:
            print(error, flush=True)
            file.unlink()  # perf_analyzer writes over nothing
    run()
    return read_export(file)


def _heard(request: dict[str, Any]) -> Heard:
    # The last response is the empty FINAL; its outputs are what lay in memory.
    *chunks_ns, _final = request["response_timestamps"]
    *outputs, _final = request["response_outputs"]
    sent_ns = request["timestamp"]
    audio_s = sum(output["num_samples"] / output["sample_rate"] for output in outputs)
    return Heard(
        ttfa_ms=(chunks_ns[0] - sent_ns) / _NS_PER_MS,
        gaps_ms=tuple((after - before) / _NS_PER_MS for before, after in pairwise(chunks_ns)),
        audio_s=audio_s,
        rtf=(chunks_ns[-1] - sent_ns) / 1e9 / audio_s,
    )


def report(load: Load) -> str:
    """A few lines of figures: median, 90th and 99th percentile."""
    gaps_ms = [gap for request in load.requests for gap in request.gaps_ms]
    lines = [f"{load.clients} clients, {len(load.requests)} requests, {sum(r.audio_s for r in load.requests):.1f} s"]
    lines.append(_line("TTFA", [request.ttfa_ms for request in load.requests], "ms", 1))
    if gaps_ms:
        lines.append(_line("gap", gaps_ms, "ms", 1))
    lines.append(_line("RTF", [request.rtf for request in load.requests], "", 3))
    return "\n".join(lines)


def _line(name: str, values: Sequence[float], unit: str, digits: int) -> str:
    p50, p90, p99 = np.percentile(values, (50, 90, 99))
    return f"  {name}: p50 {p50:.{digits}f} p90 {p90:.{digits}f} p99 {p99:.{digits}f} {unit}".rstrip()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+", help="what perf_analyzer wrote with --profile-export-file")
    for file in parser.parse_args().files:
        for load in read_export(file):
            print(report(load))


if __name__ == "__main__":
    main()
