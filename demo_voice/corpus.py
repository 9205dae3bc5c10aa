"""Speech with its text, speaker and tempo, in shards that appear one by one.

Run: python -m demo_voice.corpus FOLDER --hours 20 --processes 16 --seed 1
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from demo_voice.flite import SAMPLE_RATE_HZ, FliteError, Pcm, flite_command, say_with_phones
from demo_voice.held_out import training_sentence
from demo_voice.phones import PHONE_FRAME_SAMPLES, Phones
from demo_voice.speakers import SPEAKER_BY_NAME, Speaker, choose, style

SHARD_UTTERANCES = 250
_SECONDS_PER_UTTERANCE = 2.7
_SEEDS_PER_CORPUS = 10_000_000


@dataclass(frozen=True, eq=False)
class Utterance:
    """`style` is control text that names this speaker and tempo, without its parentheses; pcm is 16 kHz [n], whole
    patches; `tempo` multiplies durations; phones: one for each PHONE_FRAME_SAMPLES."""

    text: str
    speaker: str
    style: str
    tempo: float
    pcm: Pcm
    phones: Phones


def utterance(seed: int, speaker: Speaker | None = None) -> Utterance:
    """A training sentence, by one of the corpus's speakers or by the given one. Raises FliteError."""
    rng = random.Random(f"utterance {seed}")
    chosen, tempo = choose(rng)
    if speaker is not None:
        chosen, tempo = speaker, 1.0
    text = training_sentence(seed)
    control = style(chosen, tempo, rng) if speaker is None else ""
    return Utterance(text, chosen.name, control, tempo, *say_with_phones(text, chosen, tempo))


def write_shard(folder: Path, seed: int, speaker: Speaker | None, index: int) -> float:
    """Make and write shard number `index` of a corpus unless it is there; returns its hours. It appears when it is
    complete."""
    path = folder / f"shard-{index:04d}.npz"
    if not path.exists():
        first = seed * _SEEDS_PER_CORPUS + index * SHARD_UTTERANCES
        made = [_utterance_or_none(number, speaker) for number in range(first, first + SHARD_UTTERANCES)]
        _write(path, [each for each in made if each is not None])
    with np.load(path) as shard:
        return int(shard["offsets"][-1]) / SAMPLE_RATE_HZ / 3600


def read_shards(folder: Path) -> Iterator[Utterance]:
    """Utterances of the shards that are there, in order."""
    for path in shard_paths(folder):
        yield from read_shard(path)


def shard_paths(folder: Path) -> list[Path]:
    """The complete shards of a corpus, in order."""
    return sorted(folder.glob("shard-*.npz"))


def read_shard(path: Path) -> list[Utterance]:
    """The utterances of one shard; their pcm and phones are views of one array each."""
    with np.load(path) as shard:
        pcm, phones, offsets = shard["pcm"], shard["phones"], shard["offsets"]
        records = json.loads(bytes(shard["records"]))
    return [
        Utterance(
            **record,
            pcm=pcm[begin:end],
            phones=phones[begin // PHONE_FRAME_SAMPLES : end // PHONE_FRAME_SAMPLES],
        )
        for record, begin, end in zip(records, offsets[:-1], offsets[1:], strict=True)
    ]


def make_corpus(folder: Path, hours: float, num_processes: int, seed: int, speaker: Speaker | None = None) -> float:
    """Write as many shards as have that many hours, the same ones whatever the number of processes; returns hours."""
    flite_command()
    folder.mkdir(parents=True, exist_ok=True)
    num_shards = max(1, round(hours * 3600 / _SECONDS_PER_UTTERANCE / SHARD_UTTERANCES))
    made_hours, started_s = 0.0, time.monotonic()
    with ProcessPoolExecutor(num_processes) as pool:
        shards = pool.map(partial(write_shard, folder, seed, speaker), range(num_shards))
        for index, shard_hours in enumerate(shards):
            made_hours += shard_hours
            elapsed_s = time.monotonic() - started_s
            print(f"shard {index + 1}/{num_shards}: {made_hours:.2f} h in {elapsed_s:.0f} s", flush=True)
    return made_hours


def _utterance_or_none(seed: int, speaker: Speaker | None) -> Utterance | None:
    try:
        return utterance(seed, speaker)
    except FliteError as error:  # hours of speech are worth more than one sentence
        print(f"utterance {seed} is left out: {error}", flush=True)
        return None


def _write(path: Path, utterances: list[Utterance]) -> None:
    records = [
        {"text": each.text, "speaker": each.speaker, "style": each.style, "tempo": each.tempo} for each in utterances
    ]
    partial_path = path.with_name(f".{path.name}.{os.getpid()}")
    with partial_path.open("wb") as file:
        np.savez(
            file,
            pcm=np.concatenate([each.pcm for each in utterances]),
            phones=np.concatenate([each.phones for each in utterances]),
            offsets=np.cumsum([0, *(len(each.pcm) for each in utterances)], dtype=np.int64),
            records=np.frombuffer(json.dumps(records).encode(), np.uint8),
        )
    partial_path.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make speech to train on.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hours", type=float, required=True)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--speaker", choices=SPEAKER_BY_NAME, help="this one alone, at its own tempo")
    args = parser.parse_args()
    speaker = SPEAKER_BY_NAME[args.speaker] if args.speaker else None
    make_corpus(args.folder, args.hours, args.processes, args.seed, speaker)


if __name__ == "__main__":
    main()
