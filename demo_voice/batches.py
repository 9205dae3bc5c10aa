"""Drawing training sequences and putting them into batches, in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from demo_voice.flow import TensorBatch
from demo_voice.layouts import BatchShape, Ids, Laid, bring_to, collate, lay_out
from demo_voice.layouts_catalog import Catalog, Speech
from demo_voice.train_spelling import Spelling

ZERO_SHOT, REFERENCE, CONTINUATION = 0.40, 0.25, 0.25  # the rest is combined
STYLED = 0.2  # of the zero-shot sequences
SPACED_PROMPTS = 0.5
MAX_REFERENCE_PATCHES = 31  # 5 s
# Few shapes of batches occur: lengths are rounded up, and numbers of patches are shares of those of the rows.
ROW_STEP = 32
PATCH_SHARE, TARGET_SHARE = 0.625, 0.375

T = TypeVar("T")


class BatchSettings(NamedTuple):
    """How much goes into a step."""

    patch_size: int
    rows_per_batch: int  # LM positions, filling included
    sequences_per_pool: int  # drawn together and sorted by length


def draw(catalog: Catalog, spelling: Spelling, patch_size: int, rng: np.random.Generator) -> Laid:
    """One sequence of a random kind. The catalog must hold an utterance of the default speaker."""
    none = np.zeros((0, patch_size), np.int64)
    kind = rng.random()
    voices = catalog.voices()
    if kind < ZERO_SHOT or not voices:
        if catalog.styled and rng.random() < STYLED:
            target = _pick(catalog.styled, rng)
            return lay_out(spelling.vary(target.styled, rng).tolist(), target.patches(patch_size), none, none)
        target = _pick(catalog.default, rng)
        return lay_out(spelling.vary(target.plain, rng).tolist(), target.patches(patch_size), none, none)
    target, example, other = _distinct(_pick(voices, rng), rng)
    text, reference, prompt = target.plain, none, none
    if kind < ZERO_SHOT + REFERENCE:
        reference = _window(example.patches(patch_size), rng)
    else:
        prompt = example.prompt_patches(patch_size)
        # The engine joins the texts as they are given, and users leave the space out as often as not.
        text = np.concatenate((example.plain, text if rng.random() < SPACED_PROMPTS else target.unspaced))
        if kind >= ZERO_SHOT + REFERENCE + CONTINUATION:
            reference = _window(other.patches(patch_size), rng)
    return lay_out(spelling.vary(text, rng).tolist(), target.patches(patch_size), reference, prompt)


def _pick(items: list[T], rng: np.random.Generator) -> T:
    return items[int(rng.integers(len(items)))]


def _distinct(speeches: list[Speech], rng: np.random.Generator) -> tuple[Speech, Speech, Speech]:
    """Three utterances of a voice, distinct as far as it has so many."""
    numbers = rng.choice(len(speeches), size=min(3, len(speeches)), replace=False)
    return speeches[numbers[0]], speeches[numbers[1]], speeches[numbers[-1]]


def _window(patches: Ids, rng: np.random.Generator) -> Ids:
    first = int(rng.integers(max(1, len(patches) - MAX_REFERENCE_PATCHES + 1)))
    return patches[first : first + MAX_REFERENCE_PATCHES]


class Batches(IterableDataset[TensorBatch]):
    """An endless stream of batches; each worker process draws its own."""

    def __init__(
        self, catalog: Catalog, spelling: Spelling, settings: BatchSettings, seed: tuple[int, ...]
    ) -> None:
        self._catalog, self._spelling, self._settings, self._seed = catalog, spelling, settings, seed

    def __iter__(self) -> Iterator[TensorBatch]:
        worker = get_worker_info()
        rng = np.random.default_rng((*self._seed, worker.id if worker else 0))
        while True:
            yield from self._pool(rng)

    def _pool(self, rng: np.random.Generator) -> Iterator[TensorBatch]:
        """Sequences of like length share a batch; the batches come in random order."""
        count, rows_per_batch = self._settings.sequences_per_pool, self._settings.rows_per_batch
        pool = [draw(self._catalog, self._spelling, self._settings.patch_size, rng) for _ in range(count)]
        pool.sort(key=lambda laid: len(laid.token_ids))
        groups = []
        while pool:
            shape = _shape(pool[-1], rows_per_batch)
            groups.append((_take(pool, shape), shape))
        for index in rng.permutation(len(groups)):
            group, shape = groups[index]
            batch = bring_to(shape, collate(group, shape.num_rows), rng)
            yield TensorBatch(*map(torch.from_numpy, batch))


def _shape(longest: Laid, rows_per_batch: int) -> BatchShape:
    num_rows = -(-len(longest.token_ids) // ROW_STEP) * ROW_STEP
    num_sequences = max(1, rows_per_batch // num_rows)
    total = num_sequences * num_rows
    num_patches = max(int(PATCH_SHARE * total), len(longest.frames))
    return BatchShape(num_sequences, num_rows, num_patches, int(TARGET_SHARE * total))


def _take(pool: list[Laid], shape: BatchShape) -> list[Laid]:
    """Remove from the end of the pool as many sequences as go into one batch, at least one."""
    taken: list[Laid] = []
    num_patches = 0
    while pool and len(taken) < shape.num_sequences:
        num_patches += len(pool[-1].frames)
        if taken and num_patches > shape.num_patches:
            break
        taken.append(pool.pop())
    return taken


def batch_loader(
    catalog: Catalog,
    spelling: Spelling,
    settings: BatchSettings,
    seed: tuple[int, ...],
    num_workers: int,
    pin_memory: bool,
) -> DataLoader[TensorBatch]:
    """Batches of the catalog as it is now, made ahead by `num_workers` processes (0: in the caller's own)."""
    return DataLoader(
        Batches(catalog, spelling, settings, seed),
        batch_size=None,
        num_workers=num_workers,
        pin_memory=pin_memory,
        prefetch_factor=2 if num_workers else None,
        # The catalog is large and already here: a fork shares it.
        multiprocessing_context="fork" if num_workers else None,
    )
