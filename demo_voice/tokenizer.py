"""The demo voice's own tokenizer: a byte-fallback BPE in the checkpoint's format, trained on composed sentences.

Run: python -m demo_voice.tokenizer FOLDER
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors, trainers
from tokenizers.models import BPE

from demo_voice.held_out import training_sentence
from demo_voice.words import rare_words, words_by_symbol

VOCAB_SIZE = 2000
MARKERS = ("<|audio_start|>", "<|audio_end|>", "<|audio_prompt_start|>", "<|audio_prompt_end|>")
FIRST_MARKER_ID = 101
_BASIC = ("<unk>", "<s>", "</s>")
_ALPHABET = ("▁", *(chr(code) for code in range(33, 127)))
_BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
_NUM_SENTENCES, _FIRST_SEED = 12_000, 900_000_000
# The finished tokenizer splits nothing, and gives the same pieces: no merge that is learned here joins two of them.
_PIECES = Regex(r"▁?[A-Za-z']+|▁?[0-9]|▁?[^▁]")


def train_tokenizer(folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and special_tokens_map.json of VOCAB_SIZE entries, always the same.

    Every printable ASCII character has an entry, everything else is spelled in bytes; ids 101 to 104 are the markers.
    """
    reserved = [f"<reserved_{index}>" for index in range(len(_BASIC) + len(_ALPHABET), FIRST_MARKER_ID)]
    known = [*_BASIC, *_ALPHABET, *reserved, *MARKERS, *_BYTES]
    merges = _learned_merges(VOCAB_SIZE - len(known))
    vocab = {token: index for index, token in enumerate([*known, *(left + right for left, right in merges)])}
    assert len(vocab) == VOCAB_SIZE
    tokenizer = Tokenizer(BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = _normalizer()
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in (*_BASIC, *MARKERS)])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_settings(folder)


def _normalizer() -> normalizers.Normalizer:
    return normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])


def _learned_merges(num_merges: int) -> list[tuple[str, str]]:
    learner = Tokenizer(BPE(unk_token="<unk>"))
    learner.normalizer = _normalizer()
    learner.pre_tokenizer = pre_tokenizers.Split(_PIECES, "isolated")
    learner.train_from_iterator(_texts(), trainers.BpeTrainer(
        vocab_size=len(_ALPHABET) + num_merges, initial_alphabet=list(_ALPHABET), limit_alphabet=len(_ALPHABET),
        show_progress=False,
    ))
    merges = json.loads(learner.to_str())["model"]["merges"]
    assert len(merges) == num_merges
    return [(left, right) for left, right in merges]


def _texts() -> Iterator[str]:
    for seed in range(_FIRST_SEED, _FIRST_SEED + _NUM_SENTENCES):
        yield training_sentence(seed)
    yield from rare_words()
    for forms in words_by_symbol().values():
        yield from forms


def _write_settings(folder: Path) -> None:
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    settings = {
        "special_tokens_map.json": names,
        "tokenizer_config.json": names | {
            "add_bos_token": True,
            "add_eos_token": False,
            "clean_up_tokenization_spaces": False,
            "legacy": True,
            "tokenizer_class": "LlamaTokenizer",
        },
    }
    for name, values in settings.items():
        (folder / name).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the tokenizer and write its files.")
    parser.add_argument("folder", type=Path)
    train_tokenizer(parser.parse_args().folder)


if __name__ == "__main__":
    main()
