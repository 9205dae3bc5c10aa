"""The whole command on tiny sizes: from shards to a folder that the engine speaks with, and on from there."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from demo_voice import train, train_lora
from demo_voice.export import MAIN_FILE, write_main
from demo_voice.speakers import DEFAULT_SPEAKER
from tests.demo_voice.tone_voice import PATCH_SAMPLES, VOCAB_SIZE, Tone, tone
from tests.engine.harness import SMALL, Harness
from voxcpm_core.checkpoint.load import load_config
from voxcpm_core.checkpoint.lora import read_lora
from voxcpm_core.checkpoint.random_init import write_tokenizer
from voxcpm_core.checkpoint.read import read_tensors, read_vae_tensors
from voxcpm_core.errors import CheckpointError
from voxcpm_core.types import Condition, SamplingParams, SpeechRequest

NOTHING = "--vae-minutes", "0", "--decoder-minutes", "0", "--model-minutes", "0"
WORDS = ("hello", "the world", "and on", "to of the", "hello hello")


def tones(speaker: str, pitch_hz: float) -> list[Tone]:
    return [tone(text, speaker, pitch_hz + 10 * i, 4 + i, style="a tone") for i, text in enumerate(WORDS)]


def write_shard(folder, index: int, utterances: list[Tone]) -> None:
    """As the corpus writes them."""
    folder.mkdir(exist_ok=True)
    records = [{"text": t.text, "speaker": t.speaker, "style": t.style, "tempo": t.tempo} for t in utterances]
    path = folder / f"shard-{index:04d}.npz"
    with path.with_suffix(".partial").open("wb") as file:
        np.savez(
            file,
            pcm=np.concatenate([t.pcm for t in utterances]),
            phones=np.concatenate([t.phones for t in utterances]),
            offsets=np.cumsum([0, *(len(t.pcm) for t in utterances)], dtype=np.int64),
            records=np.frombuffer(json.dumps(records).encode(), np.uint8),
        )
    path.with_suffix(".partial").replace(path)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    root = tmp_path_factory.mktemp("command")
    write_shard(root / "corpus", 0, tones("slt-1.00", 200) + tones("rms-1.00", 100))
    (root / "tokenizer").mkdir()
    write_tokenizer(root / "tokenizer", VOCAB_SIZE)
    return root


def arguments(places, out, *others: str) -> list[str]:
    tokenizer = str(places / "tokenizer")
    return [str(places / out), "--corpus", str(places / "corpus"), "--tokenizer", tokenizer, "--size", "tiny",
            "--device", "cpu", *others]


@pytest.fixture(scope="module")
def voice(places):
    torch.set_num_threads(1)
    phases = "--vae-minutes", "0.02", "--decoder-minutes", "0.01", "--model-minutes", "0.03"
    train.main(arguments(places, "voice", *phases))
    return places / "voice"


def test_the_engine_speaks_with_what_the_command_wrote(voice):
    harness = Harness(voice, SMALL)
    params = SamplingParams(inference_timesteps=4, max_length=6, seed=1)
    waveform = tone("", "", 150, 3).pcm.astype(np.float32) / 32768
    alone = harness.run(SpeechRequest(target_text="hello", params=params))
    cloned = harness.run(SpeechRequest(target_text="hello", reference=Condition(waveform=waveform), params=params))
    for received in (alone, cloned):
        assert received.audio.shape == (len(received.latents) * PATCH_SAMPLES,)
        assert np.isfinite(received.audio).all()
    assert harness.model.vae.sample_rate == 16000


def test_a_run_goes_on_from_the_weights_alone(places, voice):
    train.main(arguments(places, "more", *NOTHING, "--resume", str(voice)))
    for read in (read_tensors, read_vae_tensors):
        before, after = read(voice), read(places / "more")
        assert all(torch.equal(before[name], after[name]) for name in before)


def test_refining_leaves_the_model_alone(places, voice):
    shutil.copytree(voice, places / "refined")
    before = (places / "refined" / MAIN_FILE).stat().st_mtime_ns
    refining = "--resume", str(places / "refined"), *NOTHING, "--decoder-minutes", "0.01"
    train.main(arguments(places, "refined", *refining))
    assert (places / "refined" / MAIN_FILE).stat().st_mtime_ns == before
    old, new = (read_vae_tensors(folder) for folder in (voice, places / "refined"))
    changed = {name for name in old if not torch.equal(old[name], new[name])}
    assert changed
    assert all(name.startswith("decoder.") for name in changed)


def test_a_folder_of_another_size_is_refused(places, voice):
    with pytest.raises(CheckpointError, match="tensor"):
        train.main([str(places / "wrong"), "--corpus", str(places / "corpus"), "--resume", str(voice), "--size", "demo",
                    "--device", "cpu", *NOTHING])


def test_an_adapter_is_trained_for_one_further_voice(places, voice):
    write_shard(places / "giant", 0, tones("rms-0.78", 70))
    out = places / "lora"
    train_lora.main([str(voice), str(out), "--corpus", str(places / "giant"), "--minutes", "0.01", "--device", "cpu"])
    adapter = read_lora(out, Harness(voice, SMALL).model)
    assert any(pair.b.abs().max() > 0 for pair in adapter.pairs.values())


class Interrupting(dict):
    """Tensors; whoever takes one is asked to end."""

    def __getitem__(self, name):
        os.kill(os.getpid(), signal.SIGTERM)
        return super().__getitem__(name)


def test_a_signal_while_weights_are_written_is_heard_afterwards(voice, tmp_path):
    config = load_config(voice)
    tensors = read_tensors(voice)
    before = signal.signal(signal.SIGTERM, train._end)
    others_wait = threading.Event()
    threading.Thread(target=others_wait.wait).start()  # a signal may come to another thread than the main one
    try:
        with pytest.raises(SystemExit, match="ended by signal 15"):
            write_main(tmp_path, config, Interrupting(tensors))
    finally:
        others_wait.set()
        signal.signal(signal.SIGTERM, before)
    written = load_file(tmp_path / MAIN_FILE)
    assert all(torch.equal(written[name], tensors[name]) for name in tensors)


@pytest.mark.soak
def test_a_terminated_run_leaves_a_whole_checkpoint(places):
    late, out = places / "late", places / "ended"
    command = arguments(places, "ended", "--vae-minutes", "0.01", "--decoder-minutes", "0", "--model-minutes", "5")
    command[command.index(str(places / "corpus"))] = str(late)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-m", "demo_voice.train", *command], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        write_shard(late, 0, tones(DEFAULT_SPEAKER.name, 200))
        lines = iter(process.stdout.readline, "")
        assert any(line.startswith("model") for line in lines)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) != 0
    finally:
        process.kill()
        process.stdout.close()
    received = Harness(out, SMALL).run(SpeechRequest(target_text="hello", params=SamplingParams(max_length=4, seed=1)))
    assert np.isfinite(received.audio).all()
