"""The whole engine with full-size models on a GPU: `python -m benchmarks.engine [--sizes 2] [--json FILE]`.

Scheduler, joins and leaves, VAE, audio on the host; checkpoints with random weights. Each row is a burst of equal
requests: wall time a step, time to the first audio, real-time factor. Then newcomers among running streams, streams
that ask for more Euler steps than the others, and callers who ask again and again. One request of each row is made
again by an engine without graphs and kernels.
"""

from __future__ import annotations

import random
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.by_size import run_by_size
from benchmarks.card import this_card
from benchmarks.engine_loads import Burst, burst, closed_loop, idle_ttfa_ms, joins, mixed_steps, similarity
from benchmarks.limits import step_limit
from benchmarks.step import CONTEXT, NUM_STEPS, print_table
from tests.engine.harness import Harness
from voxcpm_core.checkpoint.random_init import make_checkpoint
from voxcpm_core.config import EngineConfig
from voxcpm_core.engine.threaded import ThreadedEngine, start_engine

STREAMS = (1, 8, 16, 17, 32, 33, 64)
NUM_REPEATS = 3
CUDA = torch.device("cuda")


def measure(size: str, folder: Path, streams: list[int]) -> dict[str, Any]:
    start_s = time.monotonic()
    make_checkpoint(folder, size=size, device="cuda")
    torch.cuda.empty_cache()
    made_s = time.monotonic() - start_s
    config = EngineConfig(model=str(folder), max_running=max(64, *streams), max_model_len=2048)
    engine = start_engine(config, "cuda:0")
    ready_s = time.monotonic() - start_s - made_s
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    used_share = 1 - free_bytes / total_bytes
    print(f"VoxCPM{size}: checkpoint {made_s:.1f} s, ready in {ready_s:.1f} s; "
          f"{used_share:.1%} of the GPU's memory used; {engine.core.memory}", flush=True)
    eager = Harness(
        folder, EngineConfig(max_running=1, max_model_len=512, kv_cache_mib=64, cuda_graphs="off"), device=CUDA
    )
    try:
        rows = [row(engine, eager, num_streams) for num_streams in streams]
        print_table(rows)
        others = {"idle_ttfa_ms": idle_ttfa_ms(engine)} | joins(engine) | mixed_steps(engine)
        print_table([others])
        loops = [{"streams": num_streams} | closed_loop(engine, num_streams) for num_streams in streams]
        print_table(loops)
    finally:
        engine.close()
    start = {"size": size, "ready_s": ready_s, "used_share": used_share}
    return start | {"bursts": rows, "others": others, "loops": loops}


def row(engine: ThreadedEngine, eager: Harness, num_streams: int) -> dict[str, float]:
    """Medians of a few bursts, and the spread of their steps."""
    burst(engine, num_streams, kept=0)  # kernels and pinned memory of that size are there
    kept = random.Random(num_streams).randrange(num_streams)
    bursts: list[Burst] = [burst(engine, num_streams, kept) for _ in range(NUM_REPEATS)]
    steps_ms = [one.step_ms for one in bursts]
    step_ms = statistics.median(steps_ms)
    limit = step_limit(engine.core.runner.model, num_streams, CONTEXT, NUM_STEPS, this_card())
    return {
        "streams": num_streams,
        "step_ms": step_ms,
        "spread_ms": max(steps_ms) - min(steps_ms),
        "ttfa_p50_ms": statistics.median(one.ttfa_p50_ms for one in bursts),
        "gap_max_ms": max(one.gap_max_ms for one in bursts),
        "rtf": statistics.median(one.rtf for one in bursts),
        "audio_s_per_s": statistics.median(one.audio_s_per_s for one in bursts),
        "limit_share": limit.total_ms / step_ms,
        "cosine_to_eager": min(similarity(one.kept, eager) for one in bursts),
    }


if __name__ == "__main__":
    run_by_size(__doc__, STREAMS, measure)
