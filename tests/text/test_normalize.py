"""Normalised text is the official package's, and no text does harm."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.oracle.package import official_module
from tests.stopped import kill, stopped
from voxcpm_core.errors import ErrorCode, RequestError
from voxcpm_core.text.clean import clean_text
from voxcpm_core.text.normalizer import LIBRARIES, TextNormalizer

GENEROUS_S = 60.0
PARTS = (
    "你好", "世界", "儿", "哪儿", "——", "（", "）", "【", "】", "²", "³", "√", "≈", "=", "，", "。", "“", "”", "①", "½",
    "2024年1月5日", "气温-5°C", "￥3.5元", "x-2", "１２", "١٢", "a", "B c", "don't", "12", "3.5", "$4.20", "%", "1/2",
    "555-1234", "3:30pm", "1st", "-", "- ", "# ", "<b>", "<", "</b>", "`", "```", "[x](y)", "![i](u)", "😀", "❤️",
    " ", "  ", "\n", "\t", ".", "!", "(", ")", "{ni3}", '"', "\\", "é", "\u00a0", "\x07",
)


@pytest.fixture(scope="module")
def normalizer() -> Iterator[TextNormalizer]:
    normalizer = TextNormalizer()
    yield normalizer
    normalizer.close()
    assert normalizer.pids == ()


@pytest.fixture(scope="module")
def official():
    return official_module("voxcpm.utils.text_normalize").TextNormalizer()


def texts(count: int) -> list[str]:
    rng = random.Random(1)
    return [clean_text("".join(rng.choices(PARTS, k=rng.randint(1, 9)))) for _ in range(count)]


def test_any_text_gives_what_the_official_package_gives(normalizer: TextNormalizer, official):
    num_failures = 0
    for text in texts(500):
        try:
            expected = official.normalize(text)
        except Exception:
            num_failures += 1
            with pytest.raises(RequestError) as caught:
                normalizer.normalize(text)
            assert caught.value.code is ErrorCode.INVALID_TEXT
        else:
            assert normalizer.normalize(text) == expected, text
    assert 0 < num_failures < 100


def test_sentences(normalizer: TextNormalizer):
    english = normalizer.normalize("It costs $3.50 on 2024-01-05.")
    assert english == "It costs three point five dollars on the fifth of january twenty twenty four."
    assert normalizer.normalize("今天是2024年1月5日，气温-5°C。") == "今天是二零二四年一月五日，气温负五摄氏度。"


@pytest.mark.parametrize("text", ["你好😀 ", "你好 😀 ", "哪儿 ", "hello 😀 ", " ", "", "😀"])
def test_spaces_at_the_end_are_no_fault(normalizer: TextNormalizer, text: str):
    assert normalizer.normalize(text) == normalizer.normalize(text).strip()


def test_a_text_that_the_libraries_cannot_take_is_invalid_and_not_shown(normalizer: TextNormalizer):
    with pytest.raises(RequestError) as caught:
        normalizer.normalize('" - SECRET ' + "9" * 400 + "²")
    assert caught.value.code is ErrorCode.INVALID_TEXT
    assert "SECRET" not in str(caught.value)
    assert normalizer.normalize("4") == "four"


def test_lone_surrogates(normalizer: TextNormalizer):
    with pytest.raises(RequestError) as caught:
        normalizer.normalize("a\ud800")
    assert caught.value.code is ErrorCode.INVALID_TEXT


def test_a_killed_process_is_replaced(normalizer: TextNormalizer):
    assert normalizer.normalize("4") == "four"
    has_text = threading.Event()  # its process is there, so the first question comes after the text went out
    with ThreadPoolExecutor(1) as threads, stopped(normalizer.pids) as pids:
        call = threads.submit(normalizer.normalize, "1 2", lambda: has_text.set())
        assert has_text.wait(GENEROUS_S)
        kill(pids)
        error = call.exception(GENEROUS_S)
    assert isinstance(error, RequestError)
    assert error.code is ErrorCode.INVALID_TEXT
    assert normalizer.normalize("4") == "four"


def test_a_text_that_takes_too_long_is_given_up():
    normalizer = TextNormalizer(limit_s=0.5)
    normalizer.normalize("4")
    with stopped(normalizer.pids), pytest.raises(RequestError) as caught:
        normalizer.normalize("1 2")
    assert caught.value.code is ErrorCode.INVALID_TEXT
    normalizer.close()


def test_what_is_missing_is_named():
    code = f"""
import sys
sys.modules["wetext"] = None
from voxcpm_core.errors import RequestError
from voxcpm_core.text.normalizer import require_normalizer
try:
    require_normalizer()
except RequestError as error:
    print(error.code.value, error)
print([name for name in {LIBRARIES!r} if sys.modules.get(name)])
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert shown[0].startswith("INVALID_PARAMETER normalize needs wetext")
    assert "pip install 'voxcpm-triton[normalize]'" in shown[0]
    assert shown[1] == "[]", "the libraries load in the child alone"
