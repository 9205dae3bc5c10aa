"""Values that never reach the wire."""

from __future__ import annotations

from pathlib import Path
from typing import get_type_hints

import pytest

from tests.signature import signature
from voxcpm_client.errors import InvalidParameter, InvalidText
from voxcpm_client.passage.passage import make_passage
from voxcpm_client.request import build_request, limit_queue_time
from voxcpm_client.types import SpeechOptions


def test_options_and_inputs_agree() -> None:
    for name in get_type_hints(SpeechOptions):
        build_request("voxcpm", "text", "", {name: None})
    with pytest.raises(TypeError) as caught:
        build_request("voxcpm", "text", "", {"sedd": 1})
    known = str(caught.value).split("known: ")[1].split(", ")
    assert set(known) == set(get_type_hints(SpeechOptions))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", 2**63),
        ("max_length", 2**31),
        ("cfg_value", 1e39),
        ("seed", 1.5),
        ("bitrate", 2**31),
        ("inference_timesteps", "ten"),
    ],
)
def test_values_that_do_not_fit_their_type(name: str, value: object) -> None:
    with pytest.raises(InvalidParameter, match=name):
        build_request("voxcpm", "text", "", {name: value})


@pytest.mark.parametrize(("audio_format", "streamed"), [("flac", False), ("opus", False), ("wav", True), (None, True)])
def test_formats_that_come_whole_are_asked_for_as_one_answer(audio_format: str | None, streamed: bool) -> None:
    request = build_request("voxcpm", "text", "", {"format": audio_format})
    sent = {tensor.name: raw for tensor, raw in zip(request.inputs, request.raw_input_contents, strict=True)}
    assert sent.get("stream") == (None if streamed else b"\x00")


def test_bad_cases_are_tried_again_only_in_one_answer() -> None:
    request = build_request("voxcpm", "text", "", {"retry_badcase": True})
    assert "stream" in {tensor.name for tensor in request.inputs}
    assert "stream" not in {tensor.name for tensor in build_request("voxcpm", "text", "", {}).inputs}


@pytest.mark.parametrize("text", [None, b"bytes", 3])
def test_a_text_that_is_no_str(text: object) -> None:
    with pytest.raises(TypeError, match=f"target_text: expected str, got {type(text).__name__}"):
        build_request("voxcpm", text, "", {})  # type: ignore[arg-type]
    if text is not None:
        with pytest.raises(TypeError, match="prompt_text: expected str"):
            build_request("voxcpm", "text", "", {"prompt_text": text})


def test_lone_surrogates() -> None:
    with pytest.raises(InvalidText, match="target_text"):
        build_request("voxcpm", "\ud800", "", {})
    with pytest.raises(InvalidText, match="prompt_text"):
        build_request("voxcpm", "text", "", {"prompt_text": "\ud800"})
    with pytest.raises(InvalidParameter, match="format"):
        build_request("voxcpm", "text", "", {"format": "\ud800"})
    with pytest.raises(InvalidParameter, match="request_id"):
        build_request("voxcpm", "text", "\ud800", {})


def test_missing_audio_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        build_request("voxcpm", "text", "", {"prompt_audio": tmp_path / "none.wav"})


def test_queue_time_is_bounded_only_when_there_is_a_bound() -> None:
    request = build_request("voxcpm", "text", "", {})
    limit_queue_time(request, None)
    assert "timeout" not in request.parameters
    limit_queue_time(request, 1.5)
    assert request.parameters["timeout"].int64_param == 1_500_000


def test_the_ensemble_is_told_only_what_it_takes() -> None:
    given = {"format": "mp3", "bitrate": 64, "sample_rate": None, "retry_badcase": False, "return_latents": False}
    sent = {tensor.name for tensor in build_request("voxcpm_mp3", "text", "", given).inputs}
    assert sent == {"target_text", "bitrate"}
    taken = {line.split('"')[1] for line in signature("voxcpm_mp3")[0]}
    for name in set(get_type_hints(SpeechOptions)) - taken:
        with pytest.raises(InvalidParameter, match=f"{name}: voxcpm_mp3"):
            build_request("voxcpm_mp3", "text", "", {name: 1})


def test_a_passage_of_the_ensemble_is_refused_as_mp3_is() -> None:
    with pytest.raises(InvalidParameter, match="mp3"):
        make_passage("voxcpm_mp3", {}, "", 1, 240, 80)
