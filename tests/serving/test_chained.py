"""A stream whose latents go through further models: what they are told, and that they get no more than they take."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from tests.serving.fake_triton import FakeRequest, text
from tests.serving.loaded import Loaded
from tests.serving.served import GENEROUS_S, MODEL, speech, wav_bytes
from voxcpm_core.serving import roster as roster_module
from voxcpm_core.serving import stream as stream_module
from voxcpm_core.serving.stream import WINDOW_CHUNKS
from voxcpm_core.text.tokenizer import TextTokenizer

CHAINED = ("latents", "vae_context", "stream_id", "bitrate", "chunk_index", "is_last", "finish_reason", "seed")
SETTLED_S = 0.1


@pytest.fixture
def loaded(tokenizer: TextTokenizer, tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    loaded = Loaded(tokenizer)
    yield loaded
    loaded.close()


def chained(patches: int, **inputs: np.ndarray) -> FakeRequest:
    request = speech(patches=patches, length_cap=np.array([False]), seed=np.array([3], np.int64), **inputs)
    request.output_names = CHAINED
    return request


def wait_until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + GENEROUS_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.002)


def outputs(request: FakeRequest) -> list[dict[str, np.ndarray]]:
    sent = [each for each in request.sender.responses if each.error is None]
    return [{tensor.name(): tensor.as_numpy() for tensor in each.output_tensors} for each in sent]


def sent(request: FakeRequest) -> int:
    return len(request.sender.responses)


def stream_id(request: FakeRequest) -> str:
    wait_until(lambda: bool(request.sender.responses))
    return str(outputs(request)[0]["stream_id"][0].decode())


def test_no_more_than_the_window_is_sent_and_the_order_is_kept(loaded: Loaded):
    request = chained(patches=200)
    loaded.instance.execute([request])
    wait_until(lambda: loaded.engine.num_made == 200)
    time.sleep(SETTLED_S)
    assert len(request.sender.responses) == WINDOW_CHUNKS
    assert loaded.engine.stats().running == 0, "the engine does not wait"
    taken = 0
    while not request.sender.final.is_set():
        taken += 3
        loaded.ask("told", taken={stream_id(request): taken, "another": 5}, left=[])
        wait_until(lambda due=taken + WINDOW_CHUNKS: request.sender.final.is_set() or sent(request) == due)
    assert request.sender.violations == []
    chunks = outputs(request)
    assert [each["chunk_index"][0] for each in chunks] == list(range(len(chunks)))
    assert sum(len(each["latents"]) for each in chunks) == 200 * MODEL.patch_size
    assert all("audio" not in each for each in chunks)


def test_a_stream_that_is_left_behind_ends_and_others_go_on(loaded: Loaded):
    leaving, staying = chained(patches=4000), chained(patches=4000)
    loaded.instance.execute([leaving, staying])
    loaded.ask("told", left=[stream_id(leaving)], taken={})
    assert leaving.sender.final.wait(GENEROUS_S)
    assert leaving.sender.errors[0].code == "CANCELLED"
    assert not staying.sender.final.is_set()


def test_it_is_told_of_which_streams_nothing_comes_any_more(loaded: Loaded, monkeypatch: pytest.MonkeyPatch):
    failing, leaving, done, running = chained(4000), chained(4000), chained(4), chained(4000)
    loaded.instance.execute([failing, leaving, done, running])
    ids = [stream_id(each) for each in (failing, leaving, done, running)]

    def over() -> list[str]:
        found: list[str] = loaded.ask("told", left=[], taken={}, silent=[*ids, "of another server"])["over"]
        return found

    assert over() == []
    failing.sender.gone.set()
    assert done.sender.final.wait(GENEROUS_S)
    assert failing.sender.final.wait(GENEROUS_S)
    assert over() == ids[:1], "of one that is done the last chunk may be on its way"
    loaded.ask("told", left=ids[1:3], taken={})
    assert leaving.sender.final.wait(GENEROUS_S)
    assert over() == ids[:3]
    monkeypatch.setattr(roster_module, "LAST_CHUNKS_S", 0.0)
    late = chained(4)
    loaded.instance.execute([late])
    ids.append(stream_id(late))
    assert late.sender.final.wait(GENEROUS_S)
    assert over() == [*ids[:3], ids[4]]


def test_what_nobody_takes_ends(loaded: Loaded, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stream_module, "STALLED_S", 0.2)
    request = chained(patches=200)
    loaded.instance.execute([request])
    assert request.sender.final.wait(GENEROUS_S)
    assert "[INTERNAL]" in request.sender.errors[0].message


@pytest.mark.parametrize("with_reference", [False, True])
def test_the_decoder_s_context_is_that_of_the_engine(loaded: Loaded, with_reference: bool):
    files = {"reference_audio": text(wav_bytes(9000))} if with_reference else {}
    request = chained(patches=4, prompt_audio=text(wav_bytes()), prompt_text=text("x"), **files)
    loaded.instance.execute([request])
    assert request.sender.final.wait(GENEROUS_S)
    assert request.sender.errors == []
    (submitted,) = loaded.engine.submitted
    given = [each.latents for each in (submitted.reference, submitted.prompt) if each is not None]
    first, *others = outputs(request)
    num_frames = MODEL.context_patches * MODEL.patch_size
    np.testing.assert_array_equal(first["vae_context"], np.concatenate(given)[-num_frames:])
    assert all(each["vae_context"].shape == (0, MODEL.feat_dim) for each in others)
    assert first["bitrate"][0] == 128


def test_a_reference_alone_leaves_the_decoder_cold(loaded: Loaded):
    request = chained(patches=4, reference_audio=text(wav_bytes()), bitrate=np.array([64], np.int32))
    loaded.instance.execute([request])
    assert request.sender.final.wait(GENEROUS_S)
    assert outputs(request)[0]["vae_context"].shape == (0, MODEL.feat_dim)
    assert outputs(request)[0]["bitrate"][0] == 64
