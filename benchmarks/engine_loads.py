"""Loads for an engine in this process, and what its streams saw of them."""

from __future__ import annotations

import itertools
import queue
import random
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.engine.harness import Harness
from voxcpm_core.engine.threaded import ThreadedEngine
from voxcpm_core.prepare import prepare
from voxcpm_core.types import Failed, FloatArray, Patch, SamplingParams, SpeechRequest, StreamEvent

TEXT = "hello the world " * 4
NUM_PATCHES = 50
NUM_IDLE, NUM_JOINS = 20, 200
NUM_RUNNING = 63
NUM_MIXED, NUM_SLOW, SLOW_TIMESTEPS = 64, 8, 25
NUM_ROUNDS = 4  # of a closed loop


def request(num_patches: int, seed: int, timesteps: int = SamplingParams().inference_timesteps) -> SpeechRequest:
    params = SamplingParams(
        max_length=num_patches, min_length=num_patches, ignore_stop=True, length_cap=False, seed=seed,
        inference_timesteps=timesteps,
    )  # fmt: skip
    return SpeechRequest(target_text=TEXT, params=params)


class Listener:
    """A stream's sink: when its patches came, in s; the first patch itself where it is wanted."""

    def __init__(
        self, engine: ThreadedEngine, asked: SpeechRequest, keeps: bool = False,
        on_end: Callable[[Listener], None] = lambda listener: None,
    ) -> None:  # fmt: skip
        self.asked = asked
        self._on_end = on_end
        self.arrived_s: list[float] = []
        self.first: tuple[FloatArray, FloatArray] | None = None  # latents, audio
        self.has_ended = threading.Event()
        self.error: Failed | None = None
        self._keeps = keeps
        prepared = prepare(asked, engine.model, engine.config, engine.tokenizer)
        self.asked_s = time.perf_counter()
        self.stream_id = engine.submit(prepared, self)

    def __call__(self, event: StreamEvent) -> None:
        if isinstance(event, Failed):
            self.error = event
            self._end()
        elif isinstance(event, Patch):
            self.arrived_s.append(time.perf_counter())
            if self._keeps and self.first is None:
                assert event.audio is not None
                self.first = event.latents.copy(), event.audio.copy()
            if event.finish_reason is not None:
                self._end()

    def _end(self) -> None:
        self.has_ended.set()
        self._on_end(self)

    def wait(self) -> None:
        self.has_ended.wait()
        if self.error is not None:
            raise self.error.error

    @property
    def ttfa_ms(self) -> float:
        return 1e3 * (self.arrived_s[0] - self.asked_s)

    @property
    def gaps_ms(self) -> list[float]:
        return [1e3 * (late - early) for early, late in itertools.pairwise(self.arrived_s)]


@dataclass(frozen=True)
class Burst:
    """Equal requests that start together."""

    step_ms: float  # wall time of the burst over the patches of a request, prefill and all
    ttfa_p50_ms: float
    gap_max_ms: float
    rtf: float  # mean time of a request over its audio
    audio_s_per_s: float
    kept: Listener


def burst(engine: ThreadedEngine, num_streams: int, kept: int) -> Burst:
    """`kept`: of which one the first patch is remembered."""
    start_s = time.perf_counter()
    listeners = [Listener(engine, request(NUM_PATCHES, seed), seed == kept) for seed in range(num_streams)]
    for listener in listeners:
        listener.wait()
    wall_s = max(listener.arrived_s[-1] for listener in listeners) - start_s
    audio_s = NUM_PATCHES * patch_s(engine)
    return Burst(
        step_ms=1e3 * wall_s / NUM_PATCHES,
        ttfa_p50_ms=statistics.median(listener.ttfa_ms for listener in listeners),
        gap_max_ms=max(max(listener.gaps_ms) for listener in listeners),
        rtf=statistics.mean(listener.arrived_s[-1] - listener.asked_s for listener in listeners) / audio_s,
        audio_s_per_s=num_streams * audio_s / wall_s,
        kept=listeners[kept],
    )


def patch_s(engine: ThreadedEngine) -> float:
    """Audio of one patch."""
    return engine.model.samples_per_patch / engine.model.vae.sample_rate


def similarity(kept: Listener, eager: Harness) -> float:
    """Cosine of the latents of the first patch to another engine's; not a number when anything is not finite."""
    assert kept.first is not None
    latents, audio = kept.first
    params = kept.asked.params
    again = eager.run(request(1, params.seed or 0, params.inference_timesteps)).latents[0]
    if not (np.isfinite(latents).all() and np.isfinite(audio).all()):
        return float("nan")
    return float((latents * again).sum() / np.linalg.norm(latents) / np.linalg.norm(again))


def idle_ttfa_ms(engine: ThreadedEngine) -> float:
    """Median, of requests that come while nothing runs."""
    ttfas_ms = []
    for seed in range(NUM_IDLE):
        listener = Listener(engine, request(2, seed))
        listener.wait()
        ttfas_ms.append(listener.ttfa_ms)
        time.sleep(0.02)
    return statistics.median(ttfas_ms)


def joins(engine: ThreadedEngine) -> dict[str, float]:
    """Short requests that come one after another at random times while others run."""
    longest = engine.config.num_positions(engine.model) - 200
    running = [Listener(engine, request(longest, seed)) for seed in range(NUM_RUNNING)]
    while len(running[0].arrived_s) < NUM_PATCHES and not running[0].has_ended.is_set():
        time.sleep(0.01)
    alone_ms = statistics.median(running[0].gaps_ms[-20:])
    num_before, draws = len(running[0].gaps_ms), random.Random(0)
    ttfas_ms = []
    for seed in range(NUM_JOINS):
        time.sleep(draws.uniform(0, 2) * alone_ms / 1e3)
        newcomer = Listener(engine, request(3, seed))
        newcomer.wait()
        ttfas_ms.append(newcomer.ttfa_ms)
    still_ran = not running[0].has_ended.is_set()
    gaps_ms = running[0].gaps_ms[num_before:]
    for listener in running:
        engine.cancel(listener.stream_id)
    for listener in running:
        listener.has_ended.wait()
    return {
        "join_ttfa_p50_ms": float(np.percentile(ttfas_ms, 50)),
        "join_ttfa_p95_ms": float(np.percentile(ttfas_ms, 95)),
        "running_gap_ms": alone_ms,
        "gap_growth_ms": max(gaps_ms) - alone_ms if still_ran else float("nan"),
    }


def closed_loop(engine: ThreadedEngine, num_streams: int) -> dict[str, float]:
    """As many callers, each of whom asks again when its stream has ended: what a server's clients can get at most.

    The first requests have lengths of their own, so that streams come and go one by one. Counted from the first end to
    the last time that somebody asked.
    """
    ended: queue.SimpleQueue[Listener] = queue.SimpleQueue()
    draws = random.Random(num_streams)
    lengths = [draws.randint(1, NUM_PATCHES) for _ in range(num_streams)]
    listeners = [
        Listener(engine, request(length, seed), on_end=ended.put) for seed, length in enumerate(lengths)
    ]
    first_end_s = 0.0
    for seed in range(num_streams, num_streams * NUM_ROUNDS):
        ended.get()
        first_end_s = first_end_s or time.perf_counter()
        listeners.append(Listener(engine, request(NUM_PATCHES, seed), on_end=ended.put))
    for listener in listeners:
        listener.wait()
    last_asked_s = listeners[-1].asked_s
    arrived_s = [at_s for listener in listeners for at_s in listener.arrived_s]
    num_counted = sum(first_end_s < at_s <= last_asked_s for at_s in arrived_s)
    return {
        "closed_audio_s_per_s": num_counted * patch_s(engine) / (last_asked_s - first_end_s),
        "closed_ttfa_p50_ms": statistics.median(listener.ttfa_ms for listener in listeners[num_streams:]),
        "closed_gap_p50_ms": statistics.median(gap for listener in listeners for gap in listener.gaps_ms),
    }


def mixed_steps(engine: ThreadedEngine) -> dict[str, float]:
    """Gaps of streams of which some ask for more Euler steps, over those of streams that are all alike."""
    gaps_ms = []
    for num_slow in (0, NUM_SLOW):
        timesteps = [SLOW_TIMESTEPS] * num_slow + [SamplingParams().inference_timesteps] * (NUM_MIXED - num_slow)
        listeners = [Listener(engine, request(NUM_PATCHES, i, steps)) for i, steps in enumerate(timesteps)]
        for listener in listeners:
            listener.wait()
        gaps_ms.append(statistics.median(listeners[-1].gaps_ms))
    return {"alike_gap_ms": gaps_ms[0], "mixed_gap_ms": gaps_ms[1], "mixed_ratio": gaps_ms[1] / gaps_ms[0]}
