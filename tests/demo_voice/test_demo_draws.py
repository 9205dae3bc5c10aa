"""Training sequences are of the kinds that requests have, in their shares, and never promise the wrong voice."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from tokenizers import Tokenizer

from demo_voice.batches import MAX_REFERENCE_PATCHES, ROW_STEP, BatchSettings, batch_loader, draw
from demo_voice.layouts_catalog import SILENT_FRAME, Catalog, Speech, styled_text
from demo_voice.train_spelling import Spelling
from voxcpm_core.checkpoint.tiny_tokenizer import write_tokenizer
from voxcpm_core.text.tokenizer import TextTokenizer


class AsItIs(Spelling):
    """Text ids of the tests stand for themselves."""

    def __init__(self) -> None:
        pass

    def vary(self, ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return ids


AS_IT_IS = AsItIs()
DEFAULT, OTHER, STYLED_ID = "slt-1.00", "rms-1.00", 9


def speech(speaker: str, first_frame: int, tempo: float = 1.0, num_patches: int = 5, style: str = "") -> Speech:
    """One whose text is its first frame's number, three times."""
    styled = np.array([STYLED_ID, first_frame]) if style else np.zeros(0, np.int64)
    num_frames = 4 * num_patches
    text = np.array([first_frame] * 3)
    return Speech(speaker, tempo, text, text, styled, first_frame, num_frames, num_frames - 3)


@pytest.fixture
def catalog() -> Catalog:
    catalog = Catalog(DEFAULT)
    for index in range(40):
        speaker = DEFAULT if index % 2 else OTHER
        tempo = 1.0 if index % 4 < 2 else 1.2
        patches = 50 if index % 8 == 0 else 5
        catalog.add(speech(speaker, 1000 + 300 * index, tempo, patches, "a man" if index % 3 == 0 else ""))
    return catalog


def test_the_kinds_come_in_their_shares_and_clone_the_voice_that_was_heard(catalog):
    rng, kinds = np.random.default_rng(0), Counter()
    voice_of = {each.first_frame: (each.speaker, each.tempo) for each in catalog.speeches}
    for _ in range(2000):
        laid = draw(catalog, AS_IT_IS, 4, rng)
        ids = laid.token_ids.tolist()
        target = int(laid.frames[laid.first_predicted :][-1, 0]) // 100
        voices = {voice_of[1000 + (int(frame) - 1000) // 300 * 300] for frame in laid.frames.flatten() if frame}
        assert len(voices) == 1, target
        has_reference, end_of_text = ids[0] == 103, ids.index(101)
        num_texts = len({i for i in ids[:end_of_text] if i >= 1000})
        has_prompt = num_texts == 2
        kinds[has_reference, has_prompt] += 1
        if not has_reference and not has_prompt:
            assert STYLED_ID in ids or voices == {(DEFAULT, 1.0)}
    shares = {kind: number / 2000 for kind, number in kinds.items()}
    expected = {(False, False): 0.4, (True, False): 0.25, (False, True): 0.25, (True, True): 0.1}
    assert shares == pytest.approx(expected, abs=0.04)


def test_a_reference_is_at_most_five_seconds(catalog):
    rng = np.random.default_rng(1)
    heard = [draw(catalog, AS_IT_IS, 4, rng) for _ in range(300)]
    lengths = [laid.token_ids.tolist().index(104) - 1 for laid in heard if laid.token_ids[0] == 103]
    assert max(lengths) == MAX_REFERENCE_PATCHES


def test_a_prompt_ends_with_what_was_heard_and_begins_with_silence():
    patches = speech(OTHER, 1000, num_patches=3).prompt_patches(4)
    assert patches.tolist() == [[SILENT_FRAME] * 3 + [1000], [1001, 1002, 1003, 1004], [1005, 1006, 1007, 1008]]


def test_a_varied_spelling_has_the_letters_of_the_regular_one(tmp_path):
    write_tokenizer(tmp_path, 512)
    spelling, tokenizer = Spelling(tmp_path), Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    regular = spelling.encode("Hello the world and on the hello")
    assert regular.tolist() == TextTokenizer.from_folder(tmp_path).encode("Hello the world and on the hello")
    rng = np.random.default_rng(0)
    varied = [spelling.vary(regular, rng) for _ in range(400)]
    letters = {"".join(map(tokenizer.id_to_token, ids.tolist())) for ids in varied}
    assert letters == {"▁Hello▁the▁world▁and▁on▁the▁hello"}
    assert len({tuple(ids) for ids in varied}) > 20
    assert 0.5 < np.mean([ids.tolist() == regular.tolist() for ids in varied]) < 0.85
    assert max(len(ids) for ids in varied) > len(regular) + 2


def test_a_control_text_stands_in_parentheses_before_the_text():
    assert styled_text("a man, slow", "Hello.", spaced=False) == "(a man, slow)Hello."
    assert styled_text("(a man)", "Hello.", spaced=True) == "(a man) Hello."


def test_joined_texts_are_spelled_as_the_engine_spells_them(tmp_path):
    write_tokenizer(tmp_path, 512)
    spelling, engine = Spelling(tmp_path), TextTokenizer.from_folder(tmp_path)
    first, second = "Hello the world.", "The hello and on."
    spaced = [*spelling.encode(first), *spelling.encode(second)]
    assert spaced == engine.encode(f"{first} {second}")
    unspaced = [*spelling.encode(first), *spelling.encode_unspaced(second)]
    assert unspaced == engine.encode(first + second)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_hold_their_size_and_repeat_with_their_seed(catalog, num_workers):
    settings = BatchSettings(patch_size=4, rows_per_batch=512, sequences_per_pool=64)

    def first(seed: int):
        loader = iter(batch_loader(catalog, AS_IT_IS, settings, (seed, 0), num_workers, pin_memory=False))
        return [next(loader) for _ in range(6)]

    once, again, other = first(3), first(3), first(4)
    for batch in once:
        assert batch.token_ids.shape[1] % ROW_STEP == 0
        assert batch.token_ids.numel() <= 512
        num_rows = batch.token_ids.numel()
        rows = batch.audio_rows[batch.audio_rows < num_rows]
        assert len(rows.unique()) == len(rows) > 0
        assert batch.audio_rows.max() <= num_rows  # where stands what fills up
        assert batch.audio_rows[batch.targets[batch.weights > 0]].max() < num_rows
        assert batch.weights.sum() > 0
    assert all(a.token_ids.equal(b.token_ids) and a.frames.equal(b.frames) for a, b in zip(once, again, strict=True))
    assert not all(a.token_ids.equal(b.token_ids) for a, b in zip(once, other, strict=True))
