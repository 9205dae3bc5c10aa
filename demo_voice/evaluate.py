"""What a checkpoint says, measured: words understood, lengths, shuffled words, cloned voices.

Run: python -m demo_voice.evaluate CHECKPOINT [--count 200] [--weights fp8] [--json FILE] [--picture FILE]
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from demo_voice.evaluate_cloning import evaluate_cloning
from demo_voice.evaluate_text import evaluate_sentences, evaluate_shuffled
from demo_voice.held_out import held_out_sentences
from voxcpm_core.api import SyncPool, VoxCPM
from voxcpm_core.config import EngineConfig

Json = dict[str, Any]

_SHUFFLED_SHARE = 5  # one sentence in five is also said shuffled
_NUM_CLONED_TEXTS = 2
_PICTURED = 0


def evaluate(
    model: str, count: int, num_processes: int, picture: Path | None = None, weights: str = EngineConfig.weights
) -> Json:
    """All figures of a checkpoint on the first `count` held-out sentences, on the CPU, with fixed seeds.

    `weights`: the engine's setting.
    """
    texts = held_out_sentences()[:count]
    pool = VoxCPM.from_pretrained(model, devices=["cpu"], weights=weights)
    assert isinstance(pool, SyncPool)
    with pool:
        sentences, source, made = evaluate_sentences(pool, texts, num_processes)
        if picture is not None:
            from demo_voice.picture import draw

            draw(picture, texts[_PICTURED], source[_PICTURED], made[_PICTURED])
        return {
            "model": Path(model).name,
            "num_sentences": len(texts),
            "weights": weights,
            "sentences": sentences,
            "shuffled": evaluate_shuffled(pool, texts[::_SHUFFLED_SHARE], num_processes),
            "cloning": evaluate_cloning(pool, texts[:_NUM_CLONED_TEXTS], num_processes),
        }


def table(results: Json) -> str:
    """The figures in lines of a name and a value."""
    return "\n".join(f"{name:<58} {value}" for name, value in _rows(results))


def _rows(results: Json) -> Iterator[tuple[str, str]]:
    sentences, shuffled = results["sentences"], results["shuffled"]
    lengths = sentences["lengths"]
    yield f"word errors of {results['num_sentences']} sentences: source", _percent(sentences["source"])
    yield "word errors: checkpoint", _percent(sentences["made"])
    yield "points above the source", f"{sentences['points_above_source']:.1f}"
    yield "substitutions, deletions, insertions", ", ".join(
        str(sentences["made"][f"num_{kind}"]) for kind in ("substitutions", "deletions", "insertions")
    )
    yield "lengths within 25 % of the source's", f"{100 * lengths['share_within_25_percent']:.1f} %"
    yield "runaways, early stops", f"{lengths['num_runaways']}, {lengths['num_early_stops']}"
    yield "median length, of the source's", f"{lengths['median_ratio']:.3f}"
    yield "word errors of shuffled sentences, as shuffled", _percent(shuffled["as_shuffled"])
    yield "word errors of shuffled sentences, against their own order", _percent(shuffled["in_order"])
    for mode, cloned in results["cloning"].items():
        yield f"{mode}: correlation of pitch, of duration", (
            f"{cloned['f0_correlation']:.3f}, {cloned['duration_correlation']:.3f}"
        )
        yield f"{mode}: word errors", _percent(cloned)


def _percent(errors: Json) -> str:
    return f"{100 * errors['word_error_rate']:.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure a checkpoint of the demo voice.")
    parser.add_argument("checkpoint")
    parser.add_argument("--count", type=int, default=len(held_out_sentences()), help="sentences, for a quick look")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="of the recogniser")
    parser.add_argument("--weights", default=EngineConfig.weights, help="the engine's setting: dtype or fp8")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path, help="PNG of the first sentence's spectrograms")
    args = parser.parse_args()
    results = evaluate(args.checkpoint, args.count, args.processes, args.picture, args.weights)
    if args.json is not None:
        args.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(table(results))


if __name__ == "__main__":
    main()
