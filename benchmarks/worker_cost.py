"""What the worker process costs: from a step's outputs being on the host to its patches at their streams' sinks.

The same load once in a worker and once in this process. Run: python -m benchmarks.worker_cost [MODEL] [DEVICE].
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import torch

from voxcpm_core.config import EngineConfig
from voxcpm_core.engine import start_engine
from voxcpm_core.prepare import prepare
from voxcpm_core.serving.handle import EngineHandle
from voxcpm_core.types import EventSink, Failed, Patch, SamplingParams, SpeechRequest, StreamEvent
from voxcpm_core.worker import start_worker

NUM_STREAMS, NUM_PATCHES = 64, 50
NUM_STEADY = 5  # steps left out while streams join


class Deliveries:
    """When the last patch of each step reached its sink, in ms after the step was collected."""

    def __init__(self, engine: EngineHandle) -> None:
        self._engine = engine
        self._delays_ms: dict[int, float] = {}  # by when the step was collected
        self._num_left = NUM_STREAMS
        self.all_ended = threading.Event()

    def sink(self) -> EventSink:
        def take(event: StreamEvent) -> None:
            now_ns = time.monotonic_ns()
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, Patch):
                collected_ns = self._engine.stats().collected_ns
                self._delays_ms[collected_ns] = (now_ns - collected_ns) / 1e6
                if event.finish_reason is not None:
                    self._num_left -= 1
                    if not self._num_left:
                        self.all_ended.set()

        return take

    def steady_ms(self) -> np.ndarray:
        return np.array(list(self._delays_ms.values())[NUM_STEADY:-NUM_STEADY])


def measure(start: Callable[[EngineConfig, str], EngineHandle], config: EngineConfig, device: str) -> np.ndarray:
    """Delays in ms of the steps in which all streams ran."""
    engine = start(config, device)
    try:
        deliveries = Deliveries(engine)
        for seed in range(NUM_STREAMS):
            params = SamplingParams(
                max_length=NUM_PATCHES, min_length=NUM_PATCHES, length_cap=False, ignore_stop=True, seed=seed
            )
            request = SpeechRequest("A short sentence.", params=params)
            engine.submit(prepare(request, engine.model, engine.config, engine.tokenizer), deliveries.sink())
        deliveries.all_ended.wait()
        return deliveries.steady_ms()
    finally:
        engine.close()


def main() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else "demo"
    device = sys.argv[2] if len(sys.argv) > 2 else "cpu"
    name = torch.cuda.get_device_name() if device.startswith("cuda") else "CPU"
    print(f"{name}, torch {torch.__version__}, model {model}, {NUM_STREAMS} streams of {NUM_PATCHES} patches")
    config = EngineConfig(model=model, max_running=NUM_STREAMS, max_model_len=512, max_prefill_tokens=4096)
    medians = {}
    for label, start in (("in process", start_engine), ("worker", start_worker)):
        delays_ms = measure(start, config, device)
        medians[label] = float(np.median(delays_ms))
        print(f"{label:>10}: p50 {medians[label]:.3f} ms, p90 {np.percentile(delays_ms, 90):.3f} ms, "
              f"{len(delays_ms)} steps")
    print(f"the worker costs {medians['worker'] - medians['in process']:.3f} ms per step at p50")


if __name__ == "__main__":
    main()
