"""Written text to spoken words, with the results of the official package's normaliser.

The grammars are those of wetext, English numbers those of inflect; what is done around them follows the package.
Imported in a child process alone: the libraries are optional, load slowly and hold the interpreter while they work.
"""

from __future__ import annotations

import itertools
import re

import inflect
import regex
import wetext

_CHINESE = re.compile(r"[\u4e00-\u9fff]")
_EMOJI = regex.compile(r"\p{Emoji_Presentation}|\p{Emoji}\uFE0F")
_MARKUP = (  # in this order; the text is a single line
    (re.compile(r"```.*?```"), ""),
    (re.compile(r"`[^`]*`"), ""),
    (re.compile(r"!\[[^\]]*\]\([^)]+\)"), ""),
    (re.compile(r"\[([^\]]+)\]\([^)]+\)"), r"\1"),  # a link leaves its text
    (re.compile(r"^(\s*)-\s+"), r"\1"),
    (re.compile(r"<[^>]+>"), ""),
    (re.compile(r"^#{1,6}\s*"), ""),
)
_HYPHEN = re.compile(r"(?<=[a-zA-Z0-9])-(?=\d)")  # wetext reads it as a minus
_ASCII = r"[\x00-\x1f!-\x7f]"
_SPACE = re.compile(f" (?!{_ASCII})|(?<!{_ASCII}) ")  # one stays only between two ASCII characters
_SYMBOLS = str.maketrans({
    "²": "平方", "³": "立方", "√": "根号", "≈": "约等于", "<": "小于",
    "（": " ", "）": " ", "【": " ", "】": " ", "`": None,
})


class Normalizer:
    """English text, or Chinese, which may hold English."""

    def __init__(self) -> None:
        self._chinese = wetext.Normalizer(lang="zh", operator="tn", remove_erhua=True)
        self._english = wetext.Normalizer(lang="en", operator="tn")
        self._numbers = inflect.engine()

    def normalize(self, text: str) -> str:
        """`text` with its whitespace cleaned. The libraries raise what they will for a text that they do not take."""
        is_chinese = _CHINESE.search(text)
        text = _without_markup(text)
        if is_chinese:
            text = self._chinese.normalize(_HYPHEN.sub(" - ", text.replace("=", "等于")))
            return _SPACE.sub("", text).translate(_SYMBOLS).replace("——", " ")
        return self._spelled_out(self._english.normalize(text))

    def _spelled_out(self, text: str) -> str:
        runs = ((is_digit, "".join(run)) for is_digit, run in itertools.groupby(text, str.isdigit))
        return "".join(str(self._numbers.number_to_words(run)) if is_digit else run for is_digit, run in runs)


def _without_markup(text: str) -> str:
    for pattern, replacement in _MARKUP:
        text = pattern.sub(replacement, text)
    return str(_EMOJI.sub("", text.strip())).replace("“", '"').replace("”", '"')
