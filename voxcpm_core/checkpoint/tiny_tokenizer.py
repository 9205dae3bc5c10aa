"""A small LLaMA-style BPE tokenizer for checkpoints with random weights."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, normalizers, processors
from tokenizers.models import BPE

_BASIC = ("<unk>", "<s>", "</s>")
_FIRST_MARKER = 101
_MARKERS = ("<|audio_start|>", "<|audio_end|>", "<|audio_prompt_start|>", "<|audio_prompt_end|>")
_CHINESE = "你好世界语音合成测试今天气真的是我们不一，。！？"
_MERGES = (
    "t h|th e|▁ the|i n|in g|a n|an d|▁ and|o n|e r|r e|h e|l l|he ll|hell o|▁ hello|w o|wo r|l d|wor ld|▁ world|"
    "H e|He ll|Hell o|▁ Hello|o u|▁ t|▁ a|▁ s|▁ w|▁ i|s t|▁ T|▁T he|q u|▁ to|t o|▁ of|o f|"
    "你 好|▁ 你好|世 界|语 音|合 成|语音 合成|测 试|今 天|天 气|我 们"
)


def write_tokenizer(folder: Path, vocab_size: int) -> None:
    """Write tokenizer.json, tokenizer_config.json and special_tokens_map.json; ids 101 to 104 are the audio markers."""
    vocab, merges = _vocab()
    assert len(vocab) <= vocab_size
    tokenizer = Tokenizer(BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in (*_BASIC, *_MARKERS)])
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    _write_json(folder / "special_tokens_map.json", names)
    _write_json(folder / "tokenizer_config.json", names | {
        "add_bos_token": True,
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
        "legacy": True,
        "tokenizer_class": "LlamaTokenizer",
    })


def _vocab() -> tuple[dict[str, int], list[tuple[str, str]]]:
    tokens = [*_BASIC, "▁", *(chr(code) for code in range(33, 127))]
    tokens += [f"<reserved_{index}>" for index in range(len(tokens), _FIRST_MARKER)]
    tokens += [*_MARKERS, *_CHINESE]
    merges = []
    for pair in _MERGES.split("|"):
        left, right = pair.split(" ")
        merges.append((left, right))
        tokens.append(left + right)
    tokens += [f"<0x{byte:02X}>" for byte in range(256)]
    return {token: index for index, token in enumerate(dict.fromkeys(tokens))}, merges


def _write_json(path: Path, values: object) -> None:
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
