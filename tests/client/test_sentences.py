"""Sentences of a text, however it arrives."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from voxcpm_client.passage.sentences import SentenceSplitter

ANYTHING = st.text(alphabet='aBcd e.!?,。！，「」"()（\n1\u0301好é…', max_size=400) | st.text(max_size=200)


def split(pieces: list[str] | str, max_chars: int = 200, first_max_chars: int = 80) -> list[str]:
    splitter = SentenceSplitter(max_chars, first_max_chars)
    sentences = [sentence for piece in pieces for sentence in splitter.feed(piece)]
    return sentences + splitter.finish()


def shown(text: str) -> list[str]:
    return [sentence.strip() for sentence in split([text]) if sentence.strip()]


@given(ANYTHING, st.integers(20, 60), st.integers(20, 60))
@example("a" * 59 + "." + "b" * 90, 60, 60)
@example("a." + " " * 200 + "B.", 20, 20)
@example("(" + "ab. Cd. " * 40, 60, 20)
def test_sentences_joined_are_the_text_and_keep_to_the_bound(text: str, max_chars: int, first_max_chars: int) -> None:
    sentences = split([text], max_chars, first_max_chars)
    assert "".join(sentences) == text
    assert all(0 < len(sentence) <= max_chars for sentence in sentences)
    spoken = [sentence for sentence in sentences if sentence.strip()]
    assert all(len(sentence) <= first_max_chars for sentence in spoken[:1])


@given(st.data())
@settings(max_examples=300)
def test_sentences_do_not_depend_on_the_pieces(data: st.DataObject) -> None:
    text = data.draw(ANYTHING)
    whole = split([text], 40, 30)
    assert split(list(text), 40, 30) == whole
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert split(pieces, 40, 30) == whole


LONG = "This one is long enough to stand alone."


@pytest.mark.parametrize(
    "sentences",
    [
        ["It costs 3.14 dollars in the U.S. today, said Dr. Smith.", LONG],
        ["We met Mr. J. R. Tolkien at 5 p.m. and left.", LONG],
        ["Is it approx. five, e.g. six or i.e. seven?", LONG],
        ["See No. 5 and Fig. 3 on page two.", LONG],
        ["It was a clear and simple no.", LONG],
        ["Visit www.example.com or version 1.2.3 of it.", LONG],
        ['"Really?" he asked, and "Yes!" was the answer.', LONG],
        ['She said: "That was the end of it."', LONG],
        ["They knew (he left. She stayed at home all day.) what it was.", LONG],
        ["(A happy voice. Young.) Hello to all of you out there!", LONG],
        ["Well... maybe it was so, who knows it?!", LONG],
        ["Wait, what was it that you wanted...", "What else could it have been, after all?"],
        ["今天天气很好。", "我们去公园散步，好吗？", "他说：「太好了！」", "然后大家一起出发了。"],
        ["価格は3.5円です。", "本当にそうなのですか？", "はい、そのとおりです。"],
        ["Das ist z. B. so, bzw. anders, sagte Hr. Maier.", LONG],
        ["1. First item of the list", "2. Second item of the list"],
        ["A headline", "And the paragraph below it goes on."],
        ["यह एक लंबा वाक्य है जो यहाँ समाप्त होता है।", "यह दूसरा वाक्य है जो अलग है।"],
    ],
)
def test_where_sentences_end(sentences: list[str]) -> None:
    is_dense = sentences[0][-1] in "。？！"
    is_list = sentences[0][-1].isalpha()
    assert shown(("" if is_dense else "\n" if is_list else " ").join(sentences)) == sentences


def test_a_wrapped_paragraph_is_no_line_of_its_own() -> None:
    assert shown("It was a dark\nand stormy night.\n\nThe rain fell in\ntorrents all day.") == [
        "It was a dark\nand stormy night.",
        "The rain fell in\ntorrents all day.",
    ]


def test_short_sentences_come_together_but_the_first() -> None:
    assert shown("Yes. No. Well. Perhaps so, who knows? I do.") == ["Yes.", "No. Well. Perhaps so, who knows?", "I do."]


def test_text_without_sentence_ends_is_cut_at_commas_then_spaces_then_anywhere() -> None:
    assert split(["one two three, four five six seven eight nine"], 30, 30)[0] == "one two three,"
    assert split(["one two three four five six seven eight"], 30, 30)[0] == "one two three four five six"
    assert [len(sentence) for sentence in split(["x" * 100], 30, 30)] == [30, 30, 30, 10]
    assert split(["costs 1,000,000,000,000,000 in all"], 20, 20)[0] == "costs"
    accents = split(["e\u0301" * 40], 21, 21)
    assert all(sentence[0] == "e" for sentence in accents)


def test_a_sentence_comes_with_the_word_after_it() -> None:
    splitter = SentenceSplitter(200, 80)
    assert splitter.feed("Hello there, you.") == []
    assert splitter.feed(" ") == []
    assert splitter.feed("H") == ["Hello there, you."]
    splitter = SentenceSplitter(200, 80)
    assert splitter.feed("今天天气很好。") == []
    assert splitter.feed("我") == ["今天天气很好。"]


def test_a_million_characters_take_a_moment() -> None:
    started_s = time.process_time()
    assert len(split(["word " * 200_000])) > 4000
    assert len(split("no end " * 3000)) > 100
    assert time.process_time() - started_s < 5 * 0.5
