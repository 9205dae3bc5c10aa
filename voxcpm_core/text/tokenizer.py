"""Text to token ids: LLaMA-style BPE in which Chinese words are split into characters."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer

from voxcpm_core.errors import CheckpointError

_WORD_START = "▁"


class TextTokenizer:
    """The model's tokenizer without its special tokens: their literals in a text are plain text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        vocab = tokenizer.get_vocab(with_added_tokens=False)
        self._vocab = vocab
        self._unknown_id = vocab.get(tokenizer.model.unk_token or "", 0)
        self._chinese_words = {token for token in vocab if len(token) >= 2 and _is_chinese(token)}
        self.vocab_size = max(vocab.values()) + 1
        self.max_token_chars = max(map(len, vocab))  # a text of n characters has at least n / max_token_chars tokens

    @classmethod
    def from_folder(cls, folder: Path) -> TextTokenizer:
        """Load a checkpoint's tokenizer.json; raises CheckpointError naming the file."""
        path = folder / "tokenizer.json"
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            # Without its added tokens the tokenizer cannot find one in a text: no text yields a marker, BOS or EOS.
            values["added_tokens"] = []
            return cls(Tokenizer.from_str(json.dumps(values)))
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from None
        except Exception as error:  # the tokenizers library raises plain Exception for a bad file
            raise CheckpointError(f"{path}: is not a tokenizer file ({error})") from None

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, without BOS and EOS. Raises UnicodeError for a text with lone surrogates."""
        text.encode("utf-8")
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        ids: list[int] = []
        for token, token_id in zip(encoding.tokens, encoding.ids, strict=True):
            word = token.replace(_WORD_START, "")
            if word in self._chinese_words:
                ids.extend(self._vocab.get(char, self._unknown_id) for char in word)
            else:
                ids.append(token_id)
        return ids


def _is_chinese(token: str) -> bool:
    return all("\u4e00" <= char <= "\u9fff" for char in token)
