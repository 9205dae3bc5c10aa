"""The demo voice's tokenizer: markers, completeness, and the same ids everywhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import LlamaTokenizerFast

from demo_voice.held_out import held_out_sentences
from demo_voice.tokenizer import FIRST_MARKER_ID, MARKERS, VOCAB_SIZE, train_tokenizer
from voxcpm_core.text.tokenizer import TextTokenizer

PRINTABLE = "".join(map(chr, range(32, 127)))
ODD_TEXTS = ("(a deep man, slow)I can't.", "It costs $12.50, 'or so'?", "naïve 你好 x…", PRINTABLE.strip())
TEXTS = (*held_out_sentences(), *ODD_TEXTS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer(path)
    return path


def test_markers_have_the_ids_of_the_format(folder: Path) -> None:
    values = json.loads((folder / "tokenizer.json").read_text())
    vocab = values["model"]["vocab"]
    assert [vocab[marker] for marker in MARKERS] == list(range(FIRST_MARKER_ID, FIRST_MARKER_ID + 4))
    assert sorted(vocab.values()) == list(range(VOCAB_SIZE))


def test_training_again_gives_the_same_file(folder: Path, tmp_path: Path) -> None:
    train_tokenizer(tmp_path)
    assert (tmp_path / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()


def test_every_printable_character_has_an_entry(folder: Path) -> None:
    tokenizer, unknown_id = TextTokenizer.from_folder(folder), 0
    byte_ids = set(range(FIRST_MARKER_ID + 4, FIRST_MARKER_ID + 4 + 256))
    for char in PRINTABLE:
        ids = tokenizer.encode(f"x{char}x")
        assert unknown_id not in ids, char
        assert byte_ids.isdisjoint(ids), char


def test_engine_and_official_package_agree(folder: Path) -> None:
    engine, official = TextTokenizer.from_folder(folder), LlamaTokenizerFast.from_pretrained(folder)
    for text in TEXTS:
        assert engine.encode(text) == official.convert_tokens_to_ids(official.tokenize(text)), text


def test_frequent_words_are_one_token(folder: Path) -> None:
    engine = TextTokenizer.from_folder(folder)
    for word in ("the", "The", "is", "and", "with", "friend", "teacher"):
        assert len(engine.encode(word)) == 1, word
