"""The blocking pool: its samples, its limits, and what it refuses."""

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.api.speaking import (
    CANCEL_LIMIT_S,
    ENDLESS,
    GENEROUS_S,
    SMALL,
    assert_same,
    engine_audio,
    is_idle,
    say,
    tone,
    wait_until,
    wav_file,
)
from tests.lora.adapters import add_adapter
from tests.noise_voice import NOISE, NOISE_FOLDER
from voxcpm_core import VoxCPM
from voxcpm_core.api import SyncPool
from voxcpm_core.checkpoint.load import load_config
from voxcpm_core.errors import RequestError
from voxcpm_core.types import Condition
from voxcpm_core.voices import Voice, VoiceStore

NUM_FEATURES, FRAMES_PER_PATCH = 16, 4  # of the noise voice


def test_chunks_are_the_engines_patches_as_arrays_of_the_callers(pool):
    chunks = list(pool.generate("Hello world", seed=7, max_generate_length=5))
    assert [(c.dtype, c.shape) for c in chunks] == [(np.float32, (7680,))] * len(chunks)
    assert_same(np.concatenate(chunks), engine_audio("Hello world"))
    assert all(chunk.flags.owndata and chunk.flags.writeable for chunk in chunks)


def test_a_seed_repeats_and_none_is_drawn(pool):
    first, again = (say(pool, "Hello", seed=3, max_generate_length=3) for _ in range(2))
    assert np.array_equal(first, again)
    drawn, other = (say(pool, "Hello", max_generate_length=3) for _ in range(2))
    assert not np.array_equal(drawn, other)


def test_the_life_of_an_adapter(pool):
    root = Path(pool._settings.engine.lora_root)
    ref = add_adapter(root, load_config(NOISE_FOLDER), "x", alpha=2)
    assert pool.register_lora("anna", root / "x") is None
    assert pool.list_loras() == ["anna"]
    with pytest.raises(RequestError, match="the adapter 'anna' exists"):
        pool.register_lora("anna", "x")
    stream = pool.generate("Hello world", seed=7, max_generate_length=5, lora_name="anna")
    first = next(stream)
    pool.unregister_lora("anna")
    said = np.concatenate([first, *stream])
    assert_same(said, engine_audio("Hello world", lora_root=str(root), lora=ref))
    assert not np.allclose(said, engine_audio("Hello world"))
    assert pool.list_loras() == []
    for call in (lambda: say(pool, "Hello", lora_name="anna"), lambda: pool.unregister_lora("anna")):
        with pytest.raises(RequestError, match="there is no adapter 'anna'"):
            call()
    with pytest.raises(RequestError, match="there is no folder '/etc' in lora_root"):
        pool.register_lora("etc", "/etc")
    with pytest.raises(RequestError, match="path: expected a folder, got 5"):
        pool.register_lora("five", 5)


def test_model_info(pool):
    info = pool.get_model_info()
    assert info.pop("model_path") == NOISE
    assert info == {
        "sample_rate": 48000, "output_sample_rate": 48000, "encoder_sample_rate": 16000, "channels": 1,
        "feat_dim": NUM_FEATURES, "patch_size": FRAMES_PER_PATCH,
    }


@pytest.mark.parametrize("seconds", [0.5, 0.32 * 3])
def test_encoded_latents_stand_for_their_audio(pool, seconds):
    """Silence fills up a prompt on its left and a reference on its right, as the engine does with audio."""
    waveform = tone(seconds)
    prompt = pool.encode_latents(wav_file(waveform), "wav")
    said = say(pool, "and on", prompt_latents=prompt, prompt_text="Hello", seed=7, max_generate_length=5)
    wanted = engine_audio("and on", prompt=Condition(waveform=waveform), prompt_text="Hello")
    assert_same(said, wanted)
    reference = pool.encode_latents(wav_file(waveform), "WAV", role="reference")
    said = say(pool, "in that voice", ref_audio_latents=reference, seed=7, max_generate_length=5)
    assert_same(said, engine_audio("in that voice", reference=Condition(waveform=waveform)))


def test_latents_may_be_bytes_or_arrays(pool):
    data = pool.encode_latents(wav_file(tone(0.5)), "wav")
    flat = np.frombuffer(data, np.float32)
    frames = flat.reshape(-1, NUM_FEATURES)
    assert len(frames) % FRAMES_PER_PATCH == 0
    said = [
        say(pool, "and on", prompt_latents=latents, prompt_text="Hello", seed=7, max_generate_length=3)
        for latents in (data, bytearray(data), memoryview(data), flat, frames, frames.astype(np.float64))
    ]
    assert all(np.array_equal(one, said[0]) for one in said)


def test_closing_gives_slot_and_pages_back(pool):
    streams = [pool.generate("Hello", **ENDLESS) for _ in range(6)]  # two of them wait for a slot
    for stream in streams[:4]:
        next(stream)
    assert pool.stats()[0].running == 4
    for stream in streams:
        stream.close()
    wait_until(lambda: is_idle(pool), CANCEL_LIMIT_S)


def test_leaving_a_loop_cancels(pool):
    for _ in pool.generate("Hello", **ENDLESS):
        break
    wait_until(lambda: is_idle(pool), CANCEL_LIMIT_S)


def test_threads_share_a_pool(pool):
    def speak(index: int) -> np.ndarray:
        return say(pool, "Hello world", seed=index % 4, max_generate_length=6)

    with ThreadPoolExecutor(8) as threads:
        said = list(threads.map(speak, range(24)))
    for index, samples in enumerate(said):
        assert_same(samples, said[index % 4])
    assert is_idle(pool)


def test_a_slow_consumer_holds_up_nobody(pool):
    slow = pool.generate("Hello", max_generate_length=20, seed=1, **ENDLESS)
    next(slow)
    say(pool, "Hello", max_generate_length=30, seed=2, **ENDLESS)
    assert is_idle(pool)
    assert len(list(slow)) == 19


LATENTS = np.zeros((4, NUM_FEATURES), np.float32)


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ({"target_text": " "}, "INVALID_TEXT", "target_text is empty"),
        ({"target_text": b"Hello"}, "INVALID_TEXT", "target_text: expected a str, got bytes"),
        ({"prompt_text": None}, "INVALID_TEXT", "prompt_text: expected a str, got NoneType"),
        ({"prompt_latents": LATENTS}, "CONFLICTING_INPUTS", "a prompt needs prompt_text"),
        ({"prompt_text": "Hello"}, "CONFLICTING_INPUTS", "prompt_text needs"),
        ({"ref_audio_latents": b"12345"}, "INVALID_LATENTS", "5 bytes are not whole float32 values"),
        ({"ref_audio_latents": LATENTS[:3]}, "INVALID_LATENTS", "multiple of 4, got 3"),
        ({"ref_audio_latents": LATENTS.astype(int)}, "INVALID_LATENTS", "got ndarray of int64"),
        ({"ref_audio_latents": [[1.0], [1.0, 2.0]]}, "INVALID_LATENTS", "got list of object"),
        ({"ref_audio_latents": LATENTS.astype(float) + 1e300}, "INVALID_LATENTS", "not finite"),
        ({"cfg_value": 11}, "INVALID_PARAMETER", "cfg_value: expected 0.1 to 10, got 11"),
        ({"temperature": "hot"}, "INVALID_PARAMETER", "temperature: expected 0 to 2, got 'hot'"),
        ({"max_generate_length": 0}, "INVALID_PARAMETER", "max_length: expected an integer >= 1, got 0"),
        ({"inference_timesteps": 31}, "INVALID_PARAMETER", "from 2 to 30, got 31"),
        ({"seed": 1.5}, "INVALID_PARAMETER", "seed: expected an integer"),
        ({"prompt_id": "p1"}, "UNKNOWN_VOICE", "there is no prompt 'p1'"),
        ({"prompt_id": "p1", "prompt_text": "x"}, "CONFLICTING_INPUTS", "prompt_id excludes"),
        ({"prompt_id": "p1", "voice": "x"}, "CONFLICTING_INPUTS", "prompt_id excludes"),
        ({"voice": "alice"}, "UNKNOWN_VOICE", "there is no voice 'alice'"),
        ({"voice": "alice", "ref_audio_latents": LATENTS}, "CONFLICTING_INPUTS", "voice excludes"),
        ({"lora_name": "a"}, "UNKNOWN_LORA", "there is no adapter 'a'"),
    ],
)
def test_bad_input_is_refused_at_the_first_chunk(pool, options, code, message):
    stream = pool.generate(**{"target_text": "Hello"} | options)
    with pytest.raises(RequestError, match=message) as error:
        next(stream)
    assert error.value.code.value == code
    assert is_idle(pool)


def test_an_unknown_option_is_a_type_error(pool):
    with pytest.raises(TypeError, match="voize"):
        pool.generate("Hello", voize="alice")


def test_a_kept_prompt_stands_for_its_latents(pool):
    file = wav_file(tone(0.5))
    prompt_id = pool.add_prompt(file, "wav", "Hello")
    by_id = say(pool, "and on", prompt_id=prompt_id, seed=7, max_generate_length=3)
    latents = pool.encode_latents(file, "wav")
    by_latents = say(pool, "and on", prompt_latents=latents, prompt_text="Hello", seed=7, max_generate_length=3)
    assert np.array_equal(by_id, by_latents)
    both = say(pool, "and on", prompt_id=prompt_id, ref_audio_latents=latents, seed=7, max_generate_length=3)
    assert not np.array_equal(both, by_id)
    pool.remove_prompt(prompt_id)
    for call in (lambda: say(pool, "and on", prompt_id=prompt_id), lambda: pool.remove_prompt(prompt_id)):
        with pytest.raises(RequestError) as error:
            call()
        assert error.value.code.value == "UNKNOWN_VOICE"
    for text, code in ((" ", "CONFLICTING_INPUTS"), (None, "INVALID_TEXT")):
        with pytest.raises(RequestError) as error:
            pool.add_prompt(file, "wav", text)
        assert error.value.code.value == code


def test_a_voice_of_the_folder_stands_for_its_latents(pool):
    latents = np.random.default_rng(1).standard_normal((8, NUM_FEATURES), dtype=np.float32)
    model = pool._workers().any.model
    VoiceStore(pool._settings.engine.voices, 10, 10).add(Voice.make("alice", model, latents, "Hello", latents))
    by_voice = say(pool, "and on", voice="alice", seed=7, max_generate_length=3)
    conditions = {"prompt_latents": latents, "prompt_text": "Hello", "ref_audio_latents": latents}
    assert np.array_equal(by_voice, say(pool, "and on", seed=7, max_generate_length=3, **conditions))
    VoiceStore(pool._settings.engine.voices, 10, 10).remove("alice")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((b"no audio", "wav"), "INVALID_AUDIO", "cannot be decoded"),
        (("hello.wav", "wav"), "INVALID_AUDIO", "wav: expected the bytes of a file, got str"),
        ((b"", "m4a"), "INVALID_PARAMETER", "wav_format: expected one of wav, flac, ogg, mp3, got 'm4a'"),
        ((b"", "wav", "voice"), "INVALID_PARAMETER", "role: expected one of prompt, reference, got 'voice'"),
    ],
)
def test_bad_audio_is_refused(pool, arguments, code, message):
    with pytest.raises(RequestError, match=message) as error:
        pool.encode_latents(*arguments)
    assert error.value.code.value == code


def test_a_notebooks_blocking_pool_ends_its_workers_when_nobody_holds_it():
    async def notebook() -> SyncPool:
        return await asyncio.to_thread(VoxCPM.from_pretrained, NOISE, devices=["cpu"], **SMALL)

    pool = asyncio.run(notebook())
    assert len(say(pool, "Hello", max_generate_length=1)) == 7680
    process = Path(f"/proc/{pool.stats()[0].worker_pid}")
    assert process.exists()
    del pool
    gc.collect()
    wait_until(lambda: not process.exists())


def test_stopping_ends_streams_and_everything_after():
    pool = VoxCPM.from_pretrained(NOISE, devices=["cpu"], max_num_seqs=1, max_model_len=512)
    streams = [pool.generate("Hello", **ENDLESS) for _ in range(2)]
    next(streams[0])
    waiting = threading.Thread(target=pytest.raises, args=(RequestError, next, streams[1]))
    waiting.start()
    pool.encode_latents(wav_file(tone(0.5)), "wav")
    pool.stop()
    pool.stop()
    waiting.join(GENEROUS_S)
    assert not waiting.is_alive()
    with pytest.raises(RequestError) as error:
        list(streams[0])
    assert error.value.code.value == "NOT_READY"
    for call in (pool.get_model_info, lambda: next(pool.generate("Hello")), lambda: pool.encode_latents(b"", "wav")):
        with pytest.raises(RequestError, match="the pool is stopped"):
            call()
