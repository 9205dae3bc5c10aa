"""Full stops that do not end a sentence."""

from __future__ import annotations

import re

from voxcpm_client.passage.width import is_wide

_LAST_WORD = re.compile(r"[^\W\d_](?:[^\W\d_]|\.)*$")
_LIST_NUMBER = re.compile(r"\s*\d{1,3}")
_BEFORE_A_NAME = re.compile(
    "mr|mrs|ms|mx|dr|prof|st|mt|sen|gov|gen|capt|cmdr|lt|sgt|hon|vs|approx|cf|viz|resp|ca|bzw|vgl|hr|fr|mme|mlle", re.I
)
_BEFORE_A_NUMBER = re.compile("no|nos|nr|fig|figs|vol|pp|ch|sec|art|eq|jan|feb|apr|jun|jul|aug|sept|oct|nov|dec", re.I)
_TIME_OF_DAY = re.compile(r"[ap]\.m", re.I)


def stands_for_more(before: str, following: str) -> bool:
    """Whether the full stop after `before` stands for letters that are left out, or numbers a list item.

    `following` is the first letter of the next word, no lower-case one.
    """
    line = before.rpartition("\n")[2]
    if _LIST_NUMBER.fullmatch(line):
        return True
    found = _LAST_WORD.search(line)
    if found is None:
        return False
    word = found.group()
    if len(word) == 1:
        return not is_wide(word)
    if "." in word:
        return _TIME_OF_DAY.fullmatch(word) is None
    return bool(_BEFORE_A_NAME.fullmatch(word) or (following.isdigit() and _BEFORE_A_NUMBER.fullmatch(word)))
