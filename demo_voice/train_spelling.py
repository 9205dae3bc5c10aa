"""Texts as tokens, spelled now and then in smaller pieces, so that the model learns how tokens sound by their parts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt

from demo_voice.layouts import Ids
from voxcpm_core.text.tokenizer import TextTokenizer

REGULAR_TEXTS = 0.5
SPLIT_TOKENS = 0.1  # of the rest's tokens, and of the parts of those that were split


class Spelling:
    """A checkpoint's tokenizer and the two parts of which each of its tokens was merged."""

    def __init__(self, folder: Path) -> None:
        """Reads the folder's tokenizer.json; raises CheckpointError when it is none."""
        self._tokenizer = TextTokenizer.from_folder(folder)
        self.vocab_size = self._tokenizer.vocab_size
        model = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
        vocab = model["vocab"]
        self._parts: npt.NDArray[np.int64] = np.full((self.vocab_size, 2), -1)  # -1: cannot be split
        for merge in model["merges"]:
            left, right = merge.split(" ") if isinstance(merge, str) else merge
            self._parts[vocab[left + right]] = vocab[left], vocab[right]

    def encode(self, text: str) -> Ids:
        """The regular spelling, as the engine gives it. # [tokens]"""
        return np.array(self._tokenizer.encode(text), np.int64)

    def encode_unspaced(self, text: str) -> Ids:
        """The regular spelling of a text that follows a full stop without a space. # [tokens]"""
        return self.encode("." + text)[len(self.encode(".")) :]

    def vary(self, ids: Ids, rng: np.random.Generator) -> Ids:
        """The regular spelling, or one in which some tokens are split. # [tokens or more]"""
        if rng.random() < REGULAR_TEXTS:
            return ids
        spelled, rest = [], ids.tolist()[::-1]
        while rest:
            token = rest.pop()
            left, right = self._parts[token]
            if left >= 0 and rng.random() < SPLIT_TOKENS:
                rest += [right, left]
            else:
                spelled.append(token)
        return np.array(spelled, np.int64)
