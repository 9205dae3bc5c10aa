"""A step of full-size models on a GPU, part by part: `python -m benchmarks.step [--sizes 2] [--json FILE]`.

Makes checkpoints with random weights, captures all graphs, and times their replays with CUDA events: solving, finishing
and what finishing consists of, prefixes of every shape, the host's work, and how long the GPU is idle between steps.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.by_size import run_by_size
from benchmarks.card import Card, this_card
from benchmarks.limits import prefill_limit_ms, step_limit
from benchmarks.profile_steps import profile_steps
from benchmarks.timing import median_ms
from tests.engine.harness import Harness
from voxcpm_core.checkpoint.random_init import make_checkpoint
from voxcpm_core.config import EngineConfig
from voxcpm_core.runner.graph_set import GraphSet
from voxcpm_core.runner.replay import Replay
from voxcpm_core.types import SamplingParams, SpeechRequest

STREAMS = (1, 2, 4, 8, 16, 17, 32, 33, 64, 128, 256)
PROFILED_STREAMS = 64
TIMED_STEPS, SEEN_STEPS, WATCHED_STEPS = 200, 500, 100  # of the profile, in this order
CONTEXT = 300  # positions of each stream
MANY_STEPS = 25  # Euler steps of a solve that has no graph of its own
NUM_STEPS = SamplingParams().inference_timesteps
REQUEST = SpeechRequest(
    target_text="hello the world " * 8,
    params=SamplingParams(max_length=900, min_length=900, ignore_stop=True, length_cap=False, seed=1),
)
CUDA = torch.device("cuda")


class Bench:
    """One model with all its graphs."""

    def __init__(self, folder: Path, max_running: int) -> None:
        start_s = time.monotonic()
        config = EngineConfig(max_running=max_running, max_model_len=1024, max_prefill_tokens=1 << 20)
        self.harness = Harness(folder, config, device=CUDA)
        loaded_s = time.monotonic()
        self.harness.core.runner.capture()
        self.start_s, self.capture_s = loaded_s - start_s, time.monotonic() - loaded_s
        graphs = self.harness.core.runner.graphs
        assert graphs is not None
        self.graphs: GraphSet = graphs
        self.card: Card = this_card()
        self._num_added = 0

    @torch.inference_mode()
    def parts(self, num_streams: int) -> dict[str, float]:
        """ms of each part with so many streams, and the share that the limits are of a whole step."""
        runner, stepper = self.harness.core.runner, self.graphs.stepper
        step, slots = runner.decode_step, list(range(num_streams))
        self.fill(num_streams)
        buffers = step.buffers
        dev_slots = torch.tensor(slots, device=CUDA)
        audio = Replay(lambda: step.decode_audio(dev_slots, buffers.last_patch[dev_slots]), stepper.pool)
        language = Replay(
            lambda: step.feed_back(dev_slots, buffers.last_patch[dev_slots], step.most_context), stepper.pool
        )

        def timed(work: Any) -> float:
            buffers.position[:num_streams].fill_(CONTEXT)
            return median_ms(work, stepper.join)

        def step_again() -> None:
            stepper.solve(slots, NUM_STEPS)
            stepper.finish(slots, slots, 0)

        row = {
            "streams": num_streams,
            "solve_ms": timed(lambda: stepper.solve(slots, NUM_STEPS)),
            "finish_ms": timed(lambda: stepper.finish(slots, slots, 0)),
            "vae_ms": timed(audio.launch),
            "feed_back_ms": timed(language.launch),
            f"solve_{MANY_STEPS}_ms": timed(lambda: stepper.solve(slots, MANY_STEPS)),
            "step_ms": timed(step_again),
        }
        limit = step_limit(runner.model, num_streams, CONTEXT, NUM_STEPS, self.card)
        row["limit_ms"], row["limit_share"] = limit.total_ms, limit.total_ms / row["step_ms"]
        self.empty()
        return row

    @torch.inference_mode()
    def prefills(self) -> list[dict[str, float]]:
        """ms of each shape of prefixes, text alone."""
        prefill, rows = self.graphs.prefill, []
        for shape in prefill.shapes.all:
            limit_ms = prefill_limit_ms(self.harness.core.runner.model, shape.rows * shape.positions, self.card)
            made_ms = median_ms(lambda shape=shape: prefill.capture(shape))
            rows.append({**shape._asdict(), "ms": made_ms, "limit_share": limit_ms / made_ms})
        return rows

    def fill(self, num_streams: int) -> None:
        """Let so many streams run, each with one patch made."""
        for _ in range(num_streams):
            self.harness.add(REQUEST)
        self._num_added += num_streams
        self.harness.step()
        torch.cuda.synchronize()

    def empty(self) -> None:
        """End all streams."""
        for stream_id in range(self._num_added):
            self.harness.cancel(stream_id)
        self.harness.drain()


def measure(size: str, folder: Path, streams: list[int]) -> dict[str, Any]:
    start_s = time.monotonic()
    make_checkpoint(folder, size=size, device="cuda")
    made_s = time.monotonic() - start_s
    bench = Bench(folder, max(streams))
    print(f"VoxCPM{size}: checkpoint {made_s:.1f} s, loading {bench.start_s:.1f} s, graphs {bench.capture_s:.1f} s; "
          f"{bench.harness.core.memory}", flush=True)
    rows = [bench.parts(num_streams) for num_streams in streams]
    print_table(rows)
    prefills = bench.prefills()
    print_table(prefills)
    profile: dict[str, float] = {}
    if max(streams) >= PROFILED_STREAMS:
        bench.fill(PROFILED_STREAMS)
        profile = profile_steps(bench.harness, TIMED_STEPS, SEEN_STEPS, WATCHED_STEPS)
        bench.empty()
        print_table([profile])
    return {"size": size, "capture_s": bench.capture_s, "steps": rows, "prefills": prefills, "profile": profile}


def print_table(rows: list[dict[str, float]]) -> None:
    names = list(rows[0])
    print("     " + " ".join(f"{name:>14}" for name in names))
    for row in rows:
        print("     " + " ".join(f"{row[name]:>14.3f}" if row[name] % 1 else f"{row[name]:>14.0f}" for name in names),
              flush=True)


if __name__ == "__main__":
    run_by_size(__doc__, STREAMS, measure)
