"""One engine of `compare_nano`, in a process of its own.

Both have the same interface, so both are measured by the same program; only what is imported differs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

TEXT = "hello the world " * 7
NUM_RUNS = 3  # of each number of streams; the one of median length counts
MAX_MODEL_LEN, MAX_PREFILL_TOKENS, MEMORY_SHARE = 2048, 8192, 0.6

Generate = Callable[[], AsyncIterator[Any]]


@dataclass(frozen=True)
class Heard:
    """One stream."""

    ttfa_s: float
    wall_s: float
    num_samples: int
    num_patches: int


@dataclass(frozen=True)
class Run:
    """All streams at once."""

    wall_s: float
    streams: tuple[Heard, ...]


async def listen(generate: Generate) -> Heard:
    begin_s = time.perf_counter()
    ttfa_s = 0.0
    num_samples = num_patches = 0
    async for audio in generate():
        if not num_patches:
            ttfa_s = time.perf_counter() - begin_s
        num_patches += 1
        num_samples += int(np.size(audio))
    return Heard(ttfa_s, time.perf_counter() - begin_s, num_samples, num_patches)


async def run_once(generate: Generate, num_streams: int) -> Run:
    begin_s = time.perf_counter()
    streams = await asyncio.gather(*(listen(generate) for _ in range(num_streams)))
    return Run(time.perf_counter() - begin_s, tuple(streams))


def row(runs: list[Run], num_patches: int, sample_rate: int) -> dict[str, Any]:
    """Figures of the run of median length. Raises ValueError for a stream that is not `num_patches` long."""
    for heard in (stream for run in runs for stream in run.streams):
        if heard.num_patches != num_patches:
            raise ValueError(f"a stream had {heard.num_patches} patches instead of {num_patches}")
    middle = sorted(runs, key=lambda run: run.wall_s)[len(runs) // 2]
    audio_s = [heard.num_samples / sample_rate for heard in middle.streams]
    return {
        "streams": len(middle.streams),
        "step_ms": 1e3 * middle.wall_s / num_patches,
        "step_ms_of_runs": [1e3 * run.wall_s / num_patches for run in runs],
        "ttfa_p50_ms": 1e3 * float(np.median([heard.ttfa_s for heard in middle.streams])),
        "rtf": float(np.mean([heard.wall_s / s for heard, s in zip(middle.streams, audio_s, strict=True)])),
        "audio_s_per_s": sum(audio_s) / middle.wall_s,
    }


async def measure(
    from_pretrained: Callable[..., Any], folder: str, device: int | str, streams: list[int], num_patches: int,
    settings: dict[str, Any], request: dict[str, Any],
) -> dict[str, Any]:  # fmt: skip
    begin_s = time.perf_counter()
    server = from_pretrained(
        model=folder, devices=[device], max_num_batched_tokens=MAX_PREFILL_TOKENS, max_num_seqs=max(streams),
        max_model_len=MAX_MODEL_LEN, gpu_memory_utilization=MEMORY_SHARE, **settings,
    )  # fmt: skip
    await server.wait_for_ready()
    ready_s = time.perf_counter() - begin_s
    try:
        info = dict(await server.get_model_info())

        def generate() -> AsyncIterator[Any]:
            return server.generate(
                target_text=TEXT, max_generate_length=num_patches, temperature=1.0, cfg_value=2.0, **request
            )

        await listen(generate)
        rows = []
        for num_streams in streams:
            await run_once(generate, num_streams)
            runs = [await run_once(generate, num_streams) for _ in range(NUM_RUNS)]
            rows.append(row(runs, num_patches, info["sample_rate"]))
            print(json.dumps(rows[-1]), flush=True)
        return {"ready_s": ready_s, "rows": rows}
    finally:
        await server.stop()


def settings_of(pairs: list[str]) -> dict[str, Any]:
    """`NAME=VALUE`, numbers as numbers."""
    values: dict[str, Any] = {}
    for name, _, text in (pair.partition("=") for pair in pairs):
        try:
            values[name] = json.loads(text)
        except ValueError:
            values[name] = text
    return values


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("engine", choices=("ours", "nano"))
    parser.add_argument("folder")
    parser.add_argument("device")
    parser.add_argument("out", type=Path)
    parser.add_argument("--streams", type=int, nargs="+")
    parser.add_argument("--patches", type=int)
    parser.add_argument("--set", nargs="*", default=[])
    given = parser.parse_args()
    if given.engine == "ours":
        from voxcpm_core import VoxCPM

        device: int | str = given.device
        request = {"length_cap": False, "ignore_stop": True, "min_length": 2}
    else:
        from nanovllm_voxcpm import VoxCPM

        device = int(given.device.partition(":")[2] or 0)
        request = {}
    measured = measure(
        VoxCPM.from_pretrained, given.folder, device, given.streams, given.patches, settings_of(given.set), request
    )
    given.out.write_text(json.dumps(asyncio.run(measured)), encoding="utf-8")


if __name__ == "__main__":
    main()
