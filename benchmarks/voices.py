"""What a voice costs, used for the first time and again: `python -m benchmarks.voices [--model demo --device cpu]`.

Time to the first audio of requests that come while nothing runs: without a voice, with new audio, with the same audio
again; and the same of latents, as a registered voice has them. Then how much longer the longest step of running
streams gets while such requests join them. Without `--model` it is a full-size VoxCPM2 with random weights.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engine_loads import NUM_PATCHES, Listener, request
from benchmarks.machine import as_line, describe_machine
from voxcpm_core.checkpoint.random_init import make_checkpoint
from voxcpm_core.config import EngineConfig
from voxcpm_core.engine.threaded import ThreadedEngine, start_engine
from voxcpm_core.types import Condition, SpeechRequest

SECONDS, LONG_SECONDS = 10.0, 60.0
JOIN_PATCHES, PAUSE_S = 3, 0.02

Roles = tuple[str, ...]
MODES: dict[str, Roles] = {"reference": ("reference",), "prompt": ("prompt",), "both": ("reference", "prompt")}


class Voices:
    """Requests with voices, each new one with audio that the engine has not seen."""

    def __init__(self, engine: ThreadedEngine) -> None:
        self._engine = engine
        self._draws = np.random.default_rng(0)

    def audio(self, seconds: float) -> Condition:
        num_samples = int(seconds * self._engine.model.vae.encoder_sample_rate)
        return Condition(waveform=self._draws.normal(0.0, 0.1, num_samples).astype(np.float32))

    def latents(self, seconds: float) -> Condition:
        """Encoded here, as when a voice is registered."""
        waveform = self.audio(seconds).waveform
        assert waveform is not None
        return Condition(latents=self._engine.encode(waveform, "right").result())

    def asked(self, roles: Roles, voice: Condition | None, num_patches: int = JOIN_PATCHES) -> SpeechRequest:
        conditions: dict[str, Any] = dict.fromkeys(roles, voice)
        words = "hello the world" if "prompt" in roles else ""
        return dataclasses.replace(request(num_patches, seed=0), **conditions, prompt_text=words)


def spoken(engine: ThreadedEngine, asked: SpeechRequest) -> Listener:
    listener = Listener(engine, asked, keeps=True)
    listener.wait()
    time.sleep(PAUSE_S)
    return listener


def idle(engine: ThreadedEngine, roles: Roles, make: Callable[[], Condition], num_repeats: int) -> dict[str, float]:
    """Medians of TTFA, and how alike the first patches of a first and a second use are at worst."""
    voices, first_ms, second_ms, cosines = Voices(engine), [], [], []
    for _ in range(num_repeats):
        asked = voices.asked(roles, make())
        first = spoken(engine, asked)
        before = engine.stats()
        second = spoken(engine, asked)
        after = engine.stats()
        assert after.num_encodings == before.num_encodings, "a second use encoded audio"
        assert after.num_voice_misses == before.num_voice_misses, "a second use embedded audio"
        first_ms.append(first.ttfa_ms)
        second_ms.append(second.ttfa_ms)
        cosines.append(cosine(first, second))
    return {
        "first_use_ttfa_ms": statistics.median(first_ms),
        "second_use_ttfa_ms": statistics.median(second_ms),
        "second_use_max_ms": max(second_ms),
        "cosine_min": min(cosines),
    }


def cosine(one: Listener, other: Listener) -> float:
    """Of the latents of two first patches."""
    assert one.first is not None
    assert other.first is not None
    a, b = one.first[0].ravel(), other.first[0].ravel()
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def among_running(
    engine: ThreadedEngine, num_running: int, kinds: dict[str, Callable[[], SpeechRequest]], num_joins: int
) -> dict[str, dict[str, float]]:
    """Growth of the running streams' longest gap over their usual one, for each kind of newcomer."""
    longest = engine.config.num_positions(engine.model) - 200
    running = [Listener(engine, request(longest, seed)) for seed in range(num_running)]
    watched, rows = running[0], {}
    wait_for(watched, min(NUM_PATCHES, longest // 4))
    for kind, make in kinds.items():
        growths_ms, ttfas_ms = [], []
        for asked in [make() for _ in range(num_joins)]:
            begin = len(watched.arrived_s)
            wait_for(watched, begin + 4)
            usual_ms = statistics.median(watched.gaps_ms[begin - 1 :])
            newcomer = Listener(engine, asked)
            newcomer.wait()
            ttfas_ms.append(newcomer.ttfa_ms)
            growths_ms.append(max(watched.gaps_ms[begin + 3 :]) - usual_ms)
        assert not watched.has_ended.is_set(), "the running streams have ended: fewer joins, or a longer max_model_len"
        rows[kind] = {
            "ttfa_p50_ms": statistics.median(ttfas_ms),
            "gap_growth_p50_ms": statistics.median(growths_ms),
            "gap_growth_max_ms": max(growths_ms),
        }
    for listener in running:
        engine.cancel(listener.stream_id)
    for listener in running:
        listener.has_ended.wait()
    return rows


def wait_for(listener: Listener, num_patches: int) -> None:
    while len(listener.arrived_s) < num_patches and not listener.has_ended.is_set():
        time.sleep(0.002)


def measure(engine: ThreadedEngine, num_running: int, num_repeats: int, seconds: float, long_seconds: float) -> Any:
    voices = Voices(engine)
    plain = voices.asked((), None)
    spoken(engine, plain)
    zero_shot_ms = [spoken(engine, plain).ttfa_ms for _ in range(num_repeats)]
    rows: dict[str, dict[str, float]] = {"no voice": {"ttfa_ms": statistics.median(zero_shot_ms)}}
    roles = {name: each for name, each in MODES.items() if engine.model.supports_reference or each == ("prompt",)}
    for name, each in roles.items():
        idle(engine, each, lambda: voices.audio(seconds), 1)  # kernels and memory of that size are there
        rows[name] = idle(engine, each, lambda: voices.audio(seconds), num_repeats)
        rows[f"{name}, latents"] = idle(engine, each, lambda: voices.latents(seconds), num_repeats)
    show(rows)
    role = next(iter(roles.values()))
    known = voices.asked(role, voices.audio(seconds))
    spoken(engine, known)
    joins = among_running(engine, num_running, {
        "no voice": lambda: plain,
        "known voice": lambda: known,
        f"new voice, {seconds:g} s": lambda: voices.asked(role, voices.audio(seconds)),
        f"new voice, {long_seconds:g} s": lambda: voices.asked(role, voices.audio(long_seconds)),
    }, num_repeats)  # fmt: skip
    show(joins)
    return {"idle": rows, "running": num_running, "joins": joins, "stats": engine.stats()._asdict()}


def show(rows: dict[str, dict[str, float]]) -> None:
    for name, row in rows.items():
        print(f"{name:>24}: " + ", ".join(f"{key} {value:.4g}" for key, value in row.items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="folder or demo")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--running", type=int, default=63, help="streams that others join")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--long-seconds", type=float, default=LONG_SECONDS)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    machine = describe_machine()
    print(as_line(machine))
    with tempfile.TemporaryDirectory() as scratch:
        model = arguments.model
        if model is None:
            model = str(Path(scratch) / "2")
            make_checkpoint(Path(model), size="2", device=arguments.device.split(":")[0])
        config = EngineConfig(model=model, max_running=arguments.running + 1, max_model_len=4096)
        engine = start_engine(config, arguments.device)
        try:
            results = measure(
                engine, arguments.running, arguments.repeats, arguments.seconds, arguments.long_seconds
            )
        finally:
            engine.close()
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine, **results}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
