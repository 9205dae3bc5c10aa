"""What the worker process costs: from a step's outputs being on the host to its patches at their streams' sinks.

The same load once in a worker and once in this process. Run: python -m benchmarks.worker_cost [MODEL] [DEVICE].
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import numpy as np

from voxcpm_core.config import EngineConfig
from voxcpm_core.handle import EngineHandle
from voxcpm_core.prepare import prepare
from voxcpm_core.types import EventSink, Failed, Patch, SamplingParams, SpeechRequest, StreamEvent
from voxcpm_core.worker import start_worker

NUM_STREAMS, NUM_PATCHES = 64, 50
NUM_RUNS = 3
NUM_EDGE_STEPS = 5  # left out at each end, where streams join and leave

Start = Callable[[EngineConfig, str], EngineHandle]


def in_process() -> Start:
    from voxcpm_core.engine.threaded import start_engine

    return start_engine


STARTS: dict[str, Callable[[], Start]] = {"in-process": in_process, "worker": lambda: start_worker}


class Deliveries:
    """When the last patch of each step reached its sink, in ms after the step was collected.

    A step brings each stream one patch at most, in whatever order, so a stream that was there already begins the next
    one; its sink asks when that one's outputs came to the host.
    """

    def __init__(self, engine: EngineHandle) -> None:
        self._engine = engine
        self._collected_ns: list[int] = []
        self._delivered_ns: list[int] = []
        self._of_step: set[int] = set()  # the streams whose patch has come
        self._num_left = NUM_STREAMS
        self.all_ended = threading.Event()

    def sink(self, stream: int) -> EventSink:
        def take(event: StreamEvent) -> None:
            now_ns = time.monotonic_ns()
            if isinstance(event, Failed):
                raise event.error
            if not isinstance(event, Patch):
                return
            if stream in self._of_step or not self._collected_ns:
                self._of_step.clear()
                self._collected_ns.append(self._engine.stats().collected_ns)
                self._delivered_ns.append(now_ns)
            self._of_step.add(stream)
            self._delivered_ns[-1] = now_ns
            if event.finish_reason is not None:
                self._num_left -= 1
                if not self._num_left:
                    self.all_ended.set()

        return take

    def steady_ms(self) -> np.ndarray:
        delays_ns = np.subtract(self._delivered_ns, self._collected_ns)
        return delays_ns[NUM_EDGE_STEPS:-NUM_EDGE_STEPS] / 1e6


def measure(start: Start, config: EngineConfig, device: str) -> np.ndarray:
    """Delays in ms of the steps in which all streams ran."""
    engine = start(config, device)
    try:
        deliveries = Deliveries(engine)
        for seed in range(NUM_STREAMS):
            params = SamplingParams(
                max_length=NUM_PATCHES, min_length=NUM_PATCHES, length_cap=False, ignore_stop=True, seed=seed
            )
            request = SpeechRequest("A short sentence.", params=params)
            prepared = prepare(request, engine.model, engine.config, engine.tokenizer)
            engine.submit(prepared, deliveries.sink(seed))
        deliveries.all_ended.wait()
        return deliveries.steady_ms()
    finally:
        engine.close()


def main() -> None:
    """Each engine in a process of its own: the caller of a worker has no torch, and no engine before it."""
    model = sys.argv[1] if len(sys.argv) > 1 else "demo"
    device = sys.argv[2] if len(sys.argv) > 2 else "cpu"
    if len(sys.argv) > 3:
        config = EngineConfig(model=model, max_running=NUM_STREAMS, max_model_len=512, max_prefill_tokens=4096)
        print(json.dumps(measure(STARTS[sys.argv[3]](), config, device).tolist()))
        return
    print(f"{device}, model {model}, {NUM_STREAMS} streams of {NUM_PATCHES} patches, {NUM_RUNS} runs")
    medians: dict[str, list[float]] = {name: [] for name in STARTS}
    for name in list(STARTS) * NUM_RUNS:
        command = [sys.executable, "-m", "benchmarks.worker_cost", model, device, name]
        delays_ms = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        medians[name].append(float(np.median(delays_ms)))
        print(f"{name:>10}: p50 {medians[name][-1]:.3f} ms, p90 {np.percentile(delays_ms, 90):.3f} ms, "
              f"{len(delays_ms)} steps")
    cost_ms = np.median(medians["worker"]) - np.median(medians["in-process"])
    print(f"the worker costs {cost_ms:.3f} ms per step at p50")


if __name__ == "__main__":
    main()
