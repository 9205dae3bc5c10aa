"""From tensors to a request: every malformed value has its code."""

import base64

import numpy as np
import pytest

from tests.serving.fake_triton import OUTPUTS, FakeRequest, text
from voxcpm_core.errors import ErrorCode, RequestError
from voxcpm_core.serving.inputs import AWAITED, ParsedRequest, parse_request
from voxcpm_core.serving.options import OutputOptions
from voxcpm_core.serving.tensors import InputTensors
from voxcpm_core.types import SamplingParams


def parse(inputs: dict[str, np.ndarray], output_names: tuple[str, ...] = OUTPUTS) -> ParsedRequest:
    return parse_request(InputTensors(FakeRequest(inputs).inputs()), "r1", output_names)


LATENTS = np.zeros((2, 4), np.float32)


def code_of(inputs: dict[str, np.ndarray]) -> ErrorCode:
    with pytest.raises(RequestError) as caught:
        parse({"target_text": text("hi"), **inputs})
    return caught.value.code


def test_defaults():
    parsed = parse({"target_text": text("hello")})
    assert parsed.options == OutputOptions()
    assert parsed.speech.target_text == "hello"
    assert parsed.speech.request_id == "r1"
    assert parsed.speech.params == SamplingParams()
    assert parsed.speech.prompt is None
    assert parsed.speech.reference is None
    assert parsed.is_complete
    assert not parsed.retry_badcase


def test_everything_given():
    latents = np.arange(8, dtype=np.float32).reshape(2, 4)
    parsed = parse({
        "target_text": text("héllo"), "prompt_text": text("før"), "prompt_audio": text(b"\x01\x02"),
        "reference_latents": latents,
        "cfg_value": np.array([1.5], np.float32), "temperature": np.array([0.5], np.float32),
        "inference_timesteps": np.array([7], np.int32), "min_length": np.array([3], np.int32),
        "max_length": np.array([9], np.int32), "seed": np.array([-5], np.int64),
        "length_cap": np.array([False]), "ignore_stop": np.array([True]),
        "format": text("mp3"), "bitrate": np.array([64], np.int32), "stream": np.array([False]),
        "encoding": text("raw"), "return_latents": np.array([True]),
        "retry_badcase": np.array([True]), "normalize": np.array([True]),
    })
    assert parsed.options == OutputOptions("mp3", 64, stream=False, wants_latents=True)
    speech = parsed.speech
    assert (speech.target_text, speech.prompt_text) == ("héllo", "før")
    assert speech.params == SamplingParams(1.5, 0.5, 7, 3, 9, False, True, -5)
    assert speech.prompt is AWAITED
    assert parsed.uploads == {"prompt": b"\x01\x02"}
    assert (parsed.normalize, parsed.retry_badcase, parsed.is_complete) == (True, True, False)
    np.testing.assert_array_equal(speech.reference.latents, latents)
    assert speech.reference.latents is not latents


def test_a_voice_is_named_and_nothing_else_conditions():
    parsed = parse({"target_text": text("x"), "voice": text("änna/..")})
    assert parsed.voice == "änna/.."
    assert parsed.is_complete
    assert (parsed.speech.prompt, parsed.speech.reference, parsed.speech.prompt_text) == (None, None, "")


def test_base64_applies_to_audio_inputs():
    wrapped = base64.encodebytes(bytes(range(100)))  # with line breaks
    parsed = parse({"target_text": text("x"), "encoding": text("base64"), "reference_audio": text(wrapped)})
    assert parsed.options.base64
    assert parsed.uploads == {"reference": bytes(range(100))}
    assert not parsed.is_complete


@pytest.mark.parametrize(
    ("names", "wants_audio", "wants_latents"),
    [
        (OUTPUTS, True, False),
        ((), True, False),
        (("audio",), True, False),
        (("latents",), False, True),
        (("seed", "is_last"), False, True),
    ],
)
def test_audio_is_made_unless_other_outputs_are_named(names: tuple[str, ...], wants_audio: bool, wants_latents: bool):
    parsed = parse({"target_text": text("x")}, names)
    assert (parsed.options.wants_audio, parsed.options.wants_latents) == (wants_audio, wants_latents)
    assert parsed.speech.wants_audio == wants_audio


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        ({"target_text": text(b"\xff\xfe")}, ErrorCode.INVALID_TEXT),
        ({"target_text": np.array([], np.object_)}, ErrorCode.INVALID_TEXT),
        ({"target_text": np.array([b"a", b"b"], np.object_)}, ErrorCode.INVALID_TEXT),
        ({"prompt_text": text(b"ok\xc3")}, ErrorCode.INVALID_TEXT),
        ({"prompt_audio": np.array([], np.object_)}, ErrorCode.INVALID_AUDIO),
        ({"prompt_audio": text("%%%"), "encoding": text("base64")}, ErrorCode.INVALID_AUDIO),
        ({"reference_audio": text("abc"), "encoding": text("base64")}, ErrorCode.INVALID_AUDIO),
        ({"reference_audio": text("é"), "encoding": text("base64")}, ErrorCode.INVALID_AUDIO),
        ({"prompt_latents": np.zeros(4, np.float32)}, ErrorCode.INVALID_LATENTS),
        ({"prompt_latents": np.zeros((0, 4), np.float32)}, ErrorCode.INVALID_LATENTS),
        ({"reference_latents": np.zeros((2, 4), np.float64)}, ErrorCode.INVALID_LATENTS),
        ({"format": text("aac")}, ErrorCode.INVALID_PARAMETER),
        ({"format": text("")}, ErrorCode.INVALID_PARAMETER),
        ({"format": text(b"\xff")}, ErrorCode.INVALID_PARAMETER),
        ({"encoding": text("hex")}, ErrorCode.INVALID_PARAMETER),
        ({"stream": np.array([], np.bool_)}, ErrorCode.INVALID_PARAMETER),
        ({"cfg_value": np.array([1, 2], np.float32)}, ErrorCode.INVALID_PARAMETER),
        ({"cfg_value": np.array([1], np.int32)}, ErrorCode.INVALID_PARAMETER),
        ({"seed": np.array([1.0], np.float32)}, ErrorCode.INVALID_PARAMETER),
        ({"normalize": np.array([True, True])}, ErrorCode.INVALID_PARAMETER),
        ({"retry_badcase": np.array([1], np.int32)}, ErrorCode.INVALID_PARAMETER),
        ({"retry_badcase": np.array([True])}, ErrorCode.INVALID_PARAMETER),
        ({"retry_badcase": np.array([True]), "stream": np.array([True])}, ErrorCode.INVALID_PARAMETER),
        ({"voice": text(b"\xff")}, ErrorCode.INVALID_PARAMETER),
        ({"voice": np.array([], np.object_)}, ErrorCode.INVALID_PARAMETER),
        ({"voice": text("v"), "prompt_text": text("")}, ErrorCode.CONFLICTING_INPUTS),
        ({"voice": text("v"), "prompt_audio": text("a")}, ErrorCode.CONFLICTING_INPUTS),
        ({"voice": text("v"), "prompt_latents": LATENTS}, ErrorCode.CONFLICTING_INPUTS),
        ({"voice": text("v"), "reference_audio": text("a")}, ErrorCode.CONFLICTING_INPUTS),
        ({"voice": text("v"), "reference_latents": LATENTS}, ErrorCode.CONFLICTING_INPUTS),
        ({"prompt_audio": text("a"), "prompt_latents": LATENTS}, ErrorCode.CONFLICTING_INPUTS),
        ({"reference_audio": text("a"), "reference_latents": LATENTS}, ErrorCode.CONFLICTING_INPUTS),
    ],
)
def test_malformed_inputs(inputs: dict[str, np.ndarray], code: ErrorCode):
    assert code_of(inputs) is code


def test_a_missing_text_is_an_error():
    with pytest.raises(RequestError, match="target_text is missing"):
        parse({})


def test_a_rejected_value_is_cut_and_the_text_is_never_shown():
    with pytest.raises(RequestError) as caught:
        parse({"target_text": text("SECRET"), "format": text("x" * 1000)})
    assert len(str(caught.value)) < 120
    with pytest.raises(RequestError) as caught:
        parse({"target_text": text(b"SECRET\xff")})
    assert "SECRET" not in str(caught.value)
