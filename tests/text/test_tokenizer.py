"""Our token ids against those of the official package's tokenizer."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxcpm_core.checkpoint.tiny_tokenizer import write_tokenizer
from voxcpm_core.errors import CheckpointError
from voxcpm_core.text.clean import clean_text
from voxcpm_core.text.tokenizer import TextTokenizer

TEXTS = [
    "Hello world", "hello the world and the other", "The quick brown fox, 1234.5!", "(a young voice)你好。",
    "你好世界", "今天天气真好，我们测试语音合成。", "a 你好 b", "Hello 你好 world 世界", "你好 你好  你好", "龘𠀀",
    "🙂", "hi 🙂 there 👩\u200d👧", "\u200fשלום\u200e", "\u202eabc", "{ni3}{hao3}", "café naïve Ω",
    "a\tb\nc", "trailing ", "nul\0byte", "<0x41>", "a<b>c | d",
]
MARKERS = ["<|audio_start|>", "<|audio_end|>", "<|audio_prompt_start|>", "<|audio_prompt_end|>"]
LITERALS = ["<s>", "</s>", "<unk>", *MARKERS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(path, 512)
    return path


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> TextTokenizer:
    return TextTokenizer.from_folder(folder)


@pytest.fixture(scope="module")
def official(folder: Path):
    transformers = pytest.importorskip("transformers")
    return _official_utils().mask_multichar_chinese_tokens(transformers.LlamaTokenizerFast.from_pretrained(folder))


@pytest.fixture(scope="module")
def tokens(folder: Path) -> dict[int, str]:
    vocab = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    return {index: token for token, index in vocab.items()}


def _official_utils() -> ModuleType:
    """The module `voxcpm.model.utils` alone: importing the package needs audio libraries that it does not use here."""
    package = importlib.util.find_spec("voxcpm")
    if package is None or not package.submodule_search_locations:
        pytest.skip("the official package is not installed")
    path = Path(package.submodule_search_locations[0]) / "model" / "utils.py"
    spec = importlib.util.spec_from_file_location("official_voxcpm_utils", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("text", TEXTS)
def test_equals_the_official_tokenizer(tokenizer, official, text):
    assert tokenizer.encode(text) == official(text)


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters=" ▁<>"), min_size=1, max_size=20))
def test_equals_the_official_tokenizer_on_any_text(tokenizer, official, text):
    assert tokenizer.encode(text) == official(text)


def test_chinese_words_become_characters(tokenizer):
    singles = [tokenizer.encode(f"a{char}")[-1] for char in "语音合成"]
    assert tokenizer.encode("语音合成")[1:] == singles


@pytest.mark.parametrize("literal", LITERALS)
@pytest.mark.parametrize("frame", ["{}", "a {} b", "{}{}", "你好{}", " {}"])
def test_literals_of_special_tokens_are_plain_text(tokenizer, tokens, literal, frame):
    text = frame.format(literal, literal)
    ids = tokenizer.encode(text)
    assert not {0, 1, 2, 101, 102, 103, 104} & set(ids)
    assert "".join(tokens[i] for i in ids).replace("▁", "") == text.replace(" ", "")


def test_the_official_tokenizer_would_take_them_for_markers(official):
    assert 101 in official("<|audio_start|>")


def test_lone_surrogates_are_a_unicode_error(tokenizer):
    with pytest.raises(UnicodeError):
        tokenizer.encode("a\ud800b")


def test_the_longest_token_bounds_the_number_of_tokens(tokenizer):
    assert tokenizer.max_token_chars == len("<|audio_prompt_start|>")


@pytest.mark.parametrize("content", [None, "{", "[]", "{}", '{"model": {"type": "BPE"}}'])
def test_a_bad_file_is_named(tmp_path, content):
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        TextTokenizer.from_folder(tmp_path)


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [("a\nb", "a b"), ("a \t\r\n b", "a b"), (" a ", " a "), ("a\u3000\u00a0b", "a b"), ("a\u200fb", "a\u200fb")],
)
def test_whitespace_runs_become_one_space(text, cleaned):
    assert clean_text(text) == cleaned
