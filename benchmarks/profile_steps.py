"""Whether the GPU ever waits for the host: running steps, timed from both sides. Audio, made beside, is not seen."""

from __future__ import annotations

import itertools
import statistics
import time
from collections import Counter
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from tests.engine.harness import Harness
from voxcpm_core.runner.replay import Replay


class TimedSteps:
    """Wraps a runner: how long the host takes for a step and, with `sees_device`, when its work begins and ends on the
    GPU, for which events are recorded that take the host's time, too."""

    def __init__(self, runner: Any, sees_device: bool) -> None:
        self._sees_device = sees_device
        self._launch, self._collect, self._runner = runner.launch, runner.collect, runner
        self.spans: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self.host_ms: list[float] = []  # to launch
        self.graphs_ms: list[float] = []  # of that, to launch graphs
        self.wait_ms: list[float] = []  # for the outputs

    def __enter__(self) -> TimedSteps:
        self._runner.launch, self._runner.collect = self.launch, self.collect
        self._replay = Replay.launch
        Replay.launch = lambda graph: self.replay(graph)  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        del self._runner.launch, self._runner.collect  # the class's own again
        Replay.launch = self._replay  # type: ignore[method-assign]

    def replay(self, graph: Replay[Any]) -> None:
        start_s = time.perf_counter()
        self._replay(graph)
        self.graphs_ms[-1] += 1e3 * (time.perf_counter() - start_s)

    def collect(self, step: Any) -> Any:
        start_s = time.perf_counter()
        result = self._collect(step)
        self.wait_ms.append(1e3 * (time.perf_counter() - start_s))
        return result

    def launch(self, plan: Any) -> Any:
        start = self._recorded()
        self.graphs_ms.append(0.0)
        start_s = time.perf_counter()
        launched = self._launch(plan)
        self.host_ms.append(1e3 * (time.perf_counter() - start_s))
        if start is not None:
            self.spans.append((start, self._recorded()))
        return launched

    def _recorded(self) -> torch.cuda.Event | None:
        if not self._sees_device:
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def idle_share(self) -> float:
        """Of the time from the first launch to the last: nothing was launched that had not been done."""
        torch.cuda.synchronize()
        gaps_ms = [max(0.0, end.elapsed_time(start)) for (_, end), (start, _) in itertools.pairwise(self.spans)]
        return sum(gaps_ms) / self.spans[0][0].elapsed_time(self.spans[-1][1])


def profile_steps(harness: Harness, num_timed: int, num_seen: int, num_watched: int) -> dict[str, float]:
    """Of a harness whose streams run and go on running: steps that are timed on the host, then such as are seen on the
    GPU, then such as the profiler watches."""
    with TimedSteps(harness.core.runner, sees_device=False) as timed:
        steps_ms = []
        for _ in range(num_timed):
            start_s = time.perf_counter()
            _step(harness)
            steps_ms.append(1e3 * (time.perf_counter() - start_s))
    with TimedSteps(harness.core.runner, sees_device=True) as seen:
        for _ in range(num_seen):
            _step(harness)
        idle_share = seen.idle_share()
    found = {
        "steps": num_seen,
        "step_ms": statistics.median(steps_ms),
        "step_max_ms": max(steps_ms),
        "launch_host_ms": statistics.median(timed.host_ms),
        "launch_graphs_ms": statistics.median(timed.graphs_ms),
        "host_ms": float(statistics.median(np.subtract(steps_ms, timed.wait_ms[-len(steps_ms) :]))),
        "idle_share": idle_share,
    }
    return found | _waits(harness, num_watched)


def _step(harness: Harness) -> None:
    """Its outputs are given up at once, as in a worker, which finds room for those of the next step without asking."""
    harness.core.step()
    harness.core.take_events()


def _waits(harness: Harness, num_steps: int) -> dict[str, float]:
    """How often a step waits for an event, and for anything else, by the profiler; and how busy that saw the GPU."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(num_steps):
            _step(harness)
    events = profiler.profiler.kineto_results.events()
    waits = Counter(event.name() for event in events if "Synchronize" in event.name())
    spans = sorted(
        (event.start_ns(), event.start_ns() + event.duration_ns())
        for event in events
        if event.device_type() == torch.autograd.DeviceType.CUDA
    )
    of_events = waits.pop("cudaEventSynchronize", 0)
    # The profiler waits for the device, too, where it begins and ends.
    of_device = waits.pop("cudaDeviceSynchronize", 0)
    return {
        "event_waits_per_step": of_events / num_steps,
        "device_waits": of_device,
        "other_waits": waits.total(),
        "profiled_busy_share": _covered_share(spans),
    }


def _covered_share(spans: list[tuple[int, int]]) -> float:
    """Of the time from the first start to the last end."""
    if not spans:
        return float("nan")
    covered_ns, reached_ns = 0, spans[0][0]
    for start_ns, end_ns in spans:
        covered_ns += max(0, end_ns - max(start_ns, reached_ns))
        reached_ns = max(reached_ns, end_ns)
    return covered_ns / (reached_ns - spans[0][0])
