"""Validation of requests and the limits that follow from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from voxcpm_core.checkpoint.tiny import tiny_config
from voxcpm_core.checkpoint.tiny_tokenizer import write_tokenizer
from voxcpm_core.config import EngineConfig, ModelConfig
from voxcpm_core.errors import ErrorCode, RequestError
from voxcpm_core.prepare import prepare, random_seed
from voxcpm_core.text.tokenizer import TextTokenizer
from voxcpm_core.types import Condition, SamplingParams, SpeechRequest

V1, V2 = (ModelConfig.from_json(tiny_config(generation)) for generation in ("0.5", "2"))
LATENTS = Condition(latents=np.zeros((8, 8), np.float32))
SECRET = "Geheimnis"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> TextTokenizer:
    path = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(path, 512)
    return TextTokenizer.from_folder(path)


@pytest.fixture
def prepared(tokenizer):
    def run(text: str = "Hello world", model: ModelConfig = V2, engine: EngineConfig | None = None, **fields):
        params = SamplingParams(**{k: fields.pop(k) for k in list(fields) if hasattr(SamplingParams, k)})
        request = SpeechRequest(text, request_id="r1", params=params, **fields)
        return prepare(request, model, engine or EngineConfig(), tokenizer, lambda: 77)

    return run


@pytest.fixture
def refused(prepared):
    def run(code: ErrorCode, *args, **fields) -> str:
        with pytest.raises(RequestError) as caught:
            prepared(*args, **fields)
        assert caught.value.code is code
        assert SECRET not in str(caught.value)
        return str(caught.value)

    return run


def test_a_plain_request(prepared, tokenizer):
    request = prepared()
    ids = tokenizer.encode("Hello world")
    assert request.token_ids == (*ids, 101)
    assert request.num_prefill == len(ids) + 1
    assert request.max_patches == 6 * len(ids) + 10
    assert (request.request_id, request.seed, request.min_length) == ("r1", 77, 2)
    assert (request.cfg_value, request.temperature, request.inference_timesteps) == (2.0, 1.0, 10)


def test_the_drawn_seed_is_exact_in_json():
    seeds = {random_seed() for _ in range(100)}
    assert len(seeds) == 100
    assert all(0 <= seed < 2**53 for seed in seeds)


@pytest.mark.parametrize("text", ["", " ", "\n\t ", "\u3000\u00a0", "\r\n"])
def test_blank_text(refused, text):
    refused(ErrorCode.INVALID_TEXT, text)


@pytest.mark.parametrize("text", ["🙂", "\u200f", "\u202e\u202c", "<s>", "<|audio_start|>", ".", "\0", "\u200b"])
def test_unusual_text_is_spoken(prepared, text):
    ids = prepared(text).token_ids
    assert not {1, 2, 101, 102, 103, 104} & set(ids[:-1])
    assert ids[-1] == 101


def test_lone_surrogates(refused):
    refused(ErrorCode.INVALID_TEXT, f"{SECRET}\ud800")


def test_whitespace_is_collapsed_and_stripped(prepared):
    assert prepared("  Hello \n\t world\n").token_ids == prepared("Hello world").token_ids


def test_prompt_text_and_target_are_tokenised_as_one(prepared, tokenizer):
    request = prepared("world", prompt=LATENTS, prompt_text="Hello ")
    assert request.token_ids == (*tokenizer.encode("Hello world"), 101)
    assert prepared(" world", prompt=LATENTS, prompt_text="Hello").token_ids == request.token_ids
    assert request.num_prefill == len(request.token_ids) + 2
    assert request.max_patches == 6 * len(tokenizer.encode("world")) + 10


def test_prompt_text_keeps_its_whitespace(prepared, tokenizer):
    request = prepared("world", prompt=LATENTS, prompt_text="Hello  the\n")
    assert request.token_ids == (*tokenizer.encode("Hello  the\nworld"), 101)


def test_conflicts(refused):
    assert "prompt_text" in refused(ErrorCode.CONFLICTING_INPUTS, prompt=LATENTS)
    refused(ErrorCode.CONFLICTING_INPUTS, prompt=LATENTS, prompt_text=" ")
    refused(ErrorCode.CONFLICTING_INPUTS, prompt_text=SECRET)
    both = Condition(waveform=np.zeros(100, np.float32), latents=LATENTS.latents)
    refused(ErrorCode.CONFLICTING_INPUTS, reference=both)
    refused(ErrorCode.CONFLICTING_INPUTS, reference=Condition())


def test_reference(prepared, refused):
    refused(ErrorCode.INVALID_PARAMETER, model=V1, reference=LATENTS)
    plain = prepared().num_prefill
    assert prepared(reference=LATENTS).num_prefill == plain + 2 + 2
    combined = prepared("world", reference=LATENTS, prompt=LATENTS, prompt_text="Hello ")
    assert combined.num_prefill == plain + 2 + 2 + 2


@pytest.mark.parametrize(("num_samples", "num_patches"), [(1, 1), (40, 1), (41, 2), (400, 10)])
def test_a_waveform_is_padded_to_whole_patches(prepared, num_samples, num_patches):
    waveform = Condition(waveform=np.zeros(num_samples, np.float32))
    assert V2.encoder_samples_per_patch == 40
    assert prepared(reference=waveform).num_prefill == prepared().num_prefill + num_patches + 2


@pytest.mark.parametrize(
    "waveform", [np.zeros(0), np.zeros((2, 100)), np.zeros(16001), np.full(9, np.nan), np.full(9, 1e6)]
)
def test_bad_waveforms(refused, waveform):
    engine = EngineConfig(max_audio_seconds=1)
    refused(ErrorCode.INVALID_AUDIO, engine=engine, reference=Condition(waveform=waveform.astype(np.float32)))


@pytest.mark.parametrize("shape", [(64,), (1, 64), (64, 1)])
def test_flat_latents_are_row_major(prepared, shape):
    values = np.arange(64, dtype=np.float32)
    latents = prepared(reference=Condition(latents=values.reshape(shape))).reference.latents
    np.testing.assert_array_equal(latents, values.reshape(8, 8))


@pytest.mark.parametrize(
    "shape", [(0, 8), (8, 7), (8, 9), (8, 64), (3, 8), (1, 8), (60,), (1, 60), (2, 4, 8), (1, 8, 8), (0,), (16, 4), ()]
)
def test_latents_of_a_wrong_shape(refused, shape):
    refused(ErrorCode.INVALID_LATENTS, reference=Condition(latents=np.zeros(shape, np.float32)))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
def test_latents_that_are_not_numbers(refused, bad):
    latents = np.zeros((8, 8), np.float32)
    latents[3, 5] = bad
    refused(ErrorCode.INVALID_LATENTS, prompt=Condition(latents=latents), prompt_text=SECRET)


@pytest.mark.parametrize(
    ("name", "bad"),
    [("cfg_value", v) for v in (0.0, 0.09, 10.1, -1.0, np.nan, np.inf, -np.inf, "2", None, True)]
    + [("temperature", v) for v in (-0.1, 2.1, np.nan, np.inf)]
    + [("inference_timesteps", v) for v in (-1, 0, 1, 31, 10.0, 2**31 - 1, None)]
    + [("min_length", v) for v in (-1, 2.0, np.nan)]
    + [("max_length", v) for v in (0, -1, 3.5)]
    + [("seed", v) for v in (2**63, -(2**63) - 1, 1.0)],
)
def test_parameters_out_of_range(refused, name, bad):
    message = refused(ErrorCode.INVALID_PARAMETER, **{name: bad})
    assert message.startswith(f"{name}: expected")
    assert message.endswith(f"got {bad!r}")


@pytest.mark.parametrize(
    ("name", "good"),
    [("cfg_value", np.float32(0.1)), ("cfg_value", 10), ("temperature", 0.0), ("temperature", np.float32(2)),
     ("inference_timesteps", 2), ("inference_timesteps", np.int32(30)), ("min_length", 0), ("seed", 2**63 - 1),
     ("seed", -(2**63)), ("seed", 0)],
)
def test_parameters_in_range(prepared, name, good):
    value = getattr(prepared(**{name: good}), name)
    assert value == good
    assert type(value) in (int, float)


def test_too_many_tokens(refused, prepared):
    engine = EngineConfig(max_text_tokens=7)
    assert len(prepared("HHHHHH", engine=engine).token_ids) == 7 + 1
    refused(ErrorCode.TOO_LARGE, "HHHHHHH", engine=engine)
    refused(ErrorCode.TOO_LARGE, "HH", engine=engine, prompt=LATENTS, prompt_text="HHHHH")


@pytest.mark.parametrize("unit", ["好", "a", "Hello world ", "🙂", " x"])
def test_long_texts_are_refused_untokenised(refused, tokenizer, monkeypatch, unit):
    monkeypatch.setattr(tokenizer, "encode", lambda text: pytest.fail("that would take seconds"))
    refused(ErrorCode.TOO_LARGE, unit * 100_000)


def test_a_long_run_of_whitespace_is_no_long_text(prepared):
    assert prepared("Hello" + " " * 100_000 + "world").token_ids == prepared().token_ids


def test_max_length_and_length_cap(prepared):
    prefill, cap = prepared().num_prefill, prepared().max_patches
    assert prepared(max_length=1).max_patches == 1
    assert prepared(max_length=cap + 5).max_patches == cap
    assert prepared(max_length=cap + 5, length_cap=False).max_patches == cap + 5
    assert prepared(length_cap=False).max_patches == 1024 - prefill
    assert prepared(length_cap=False, max_length=2**31 - 1).max_patches == 1024 - prefill
    assert prepared(ignore_stop=True, max_length=3, min_length=9).max_patches == 3


def test_the_smallest_position_limit_holds(prepared):
    prefill = prepared().num_prefill

    def most(model: ModelConfig, **settings) -> int:
        return prepared(model=model, engine=EngineConfig(**settings), length_cap=False).num_positions

    assert most(V2) == 1024
    assert most(V2, max_model_len=100) == 100
    assert most(replace(V2, max_length=200)) == 200
    lm = replace(V2.base_lm, rope=replace(V2.base_lm.rope, max_positions=300))
    assert most(replace(V2, base_lm=lm)) == 300
    assert most(V2, max_model_len=prefill + 1) == prefill + 1


def test_a_prefill_that_leaves_no_room(refused, prepared):
    prefill = prepared().num_prefill
    refused(ErrorCode.TOO_LARGE, engine=EngineConfig(max_model_len=prefill))
    long = Condition(latents=np.zeros((4 * 1024, 8), np.float32))
    assert "positions" in refused(ErrorCode.TOO_LARGE, reference=long)
