"""Adapters per request: a row of a mixed batch is what merged weights give alone, whoever comes and goes."""

from __future__ import annotations

import dataclasses
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoint.lora_folder import ATTENTION, MLP
from tests.engine.harness import SMALL, Harness
from tests.engine.requests import crowd
from tests.lora.adapters import add_adapter
from tests.parity.lora import merged_checkpoint
from voxcpm_core.checkpoint.load import load_config
from voxcpm_core.errors import ConfigError
from voxcpm_core.types import LoraRef, SpeechRequest

FP32 = {"atol": 1e-4, "rtol": 0}
NUM_PATCHES, NUM_STEPS = 3, 3  # merging rounds differently, and every patch amplifies it


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "loras").mkdir()
    return tmp_path / "loras"


def settings(root: Path, **changes):
    return dataclasses.replace(SMALL, lora_root=str(root), **changes)


def short(request: SpeechRequest, lora: LoraRef | None) -> SpeechRequest:
    params = dataclasses.replace(request.params, max_length=NUM_PATCHES, inference_timesteps=NUM_STEPS)
    return dataclasses.replace(request, params=params, lora=lora)


def test_a_row_of_a_mixed_batch_is_what_merged_weights_give_alone(tiny_checkpoints, root, tmp_path):
    folder = tiny_checkpoints["2"]
    model = load_config(folder)
    refs = [
        add_adapter(root, model, "low", r=4, alpha=4, seed=1),
        add_adapter(root, model, "high", r=20, alpha=10, seed=2, format="ckpt"),
        None,
    ]
    mixed = Harness(folder, settings(root))
    requests = [short(request, refs[i % 3]) for i, request in enumerate(crowd(6))]
    received = [mixed.add(request) for request in requests]
    mixed.drain()
    stats = mixed.core.stats()
    assert stats.num_dit_calls == stats.num_steps * (NUM_STEPS - 1), "one for the whole batch"
    alone = {
        ref: Harness(folder if ref is None else merged_checkpoint(folder, root / ref.path, tmp_path / ref.path))
        for ref in refs
    }
    for request, stream in zip(requests, received, strict=True):
        expected = alone[request.lora].run(dataclasses.replace(request, lora=None))
        assert stream.error_code is None
        np.testing.assert_allclose(stream.latents, expected.latents, **FP32)
    plain = alone[None].run(dataclasses.replace(requests[0], lora=None))
    assert np.abs(plain.latents[0] - received[0].latents[0]).max() > 1e-2, "the adapter must matter"


def test_feed_forward_layers_are_adapted_where_there_is_room(tiny_checkpoints, root, tmp_path):
    folder = tiny_checkpoints["2"]
    ref = add_adapter(root, load_config(folder), "mlp", r=4, alpha=1, names=(*ATTENTION, *MLP))
    request = short(crowd(1)[0], ref)
    received = Harness(folder, settings(root, lora_mlp="on")).run(request)
    merged = Harness(merged_checkpoint(folder, root / "mlp", tmp_path / "merged"))
    expected = merged.run(dataclasses.replace(request, lora=None))
    np.testing.assert_allclose(received.latents, expected.latents, **FP32)
    assert Harness(folder, settings(root)).run(request).error_code == "UNKNOWN_LORA"


def test_alone_equals_in_a_crowd_with_fewer_slots_than_adapters(stopping_checkpoint, root):
    """Slots are taken from each other between streams, in any order."""
    model = load_config(stopping_checkpoint)
    refs = [None, *(add_adapter(root, model, str(i), r=3 + i, seed=i) for i in range(4))]
    requests = [short(request, refs[i * 7 % 5]) for i, request in enumerate(crowd(7))]
    harness = Harness(stopping_checkpoint, settings(root, max_loras=2, max_running=4))
    alone = [harness.run(request) for request in requests]
    received = []
    for request in requests:
        received.append(harness.add(request))
        harness.step()
        harness.core._scheduler.check_integrity()
    harness.drain()
    for one, other in zip(alone, received, strict=True):
        other.check_order()
        np.testing.assert_allclose(other.latents, one.latents, atol=1e-5, rtol=0)


def test_a_stream_keeps_the_weights_that_it_began_with(tiny_checkpoints, root):
    """Its name may be registered anew meanwhile, with other weights in the same folder."""
    folder = tiny_checkpoints["2"]
    model = load_config(folder)
    request = crowd(1)[0]
    old = add_adapter(root, model, "x", seed=1)
    harness = Harness(folder, settings(root))
    expected_old = harness.run(short(request, old))
    stream = harness.add(short(request, old))
    harness.step()
    new = add_adapter(root, model, "x", seed=2)
    others = [harness.add(short(request, new)), harness.add(short(request, old))]
    harness.drain()
    for each in (stream, others[1]):
        np.testing.assert_allclose(each.latents, expected_old.latents, atol=1e-5, rtol=0)
    expected_new = Harness(folder, settings(root)).run(short(request, new))
    np.testing.assert_allclose(others[0].latents, expected_new.latents, atol=1e-5, rtol=0)
    assert np.abs(others[0].latents[0] - stream.latents[0]).max() > 1e-2


@pytest.mark.parametrize("seed", range(2))
def test_slots_balance_while_names_come_and_go(seed, stopping_checkpoint, root):
    """Registering is a new digest, unregistering takes the files away; requests may come too late for them."""
    model = load_config(stopping_checkpoint)
    harness = Harness(stopping_checkpoint, settings(root, max_loras=2, max_running=3, run_ahead=("off", "on")[seed]))
    rng = np.random.default_rng(seed)
    refs, received = [add_adapter(root, model, "0", r=2, seed=0)], []
    for i, request in enumerate(crowd(16)):
        match rng.integers(4):
            case 0:
                refs.append(add_adapter(root, model, str(i), r=2, seed=i))
            case 1:
                path = root / refs[rng.integers(len(refs))].path / "lora_weights.safetensors"
                path.unlink(missing_ok=True)
            case 2:
                harness.cancel(int(rng.integers(i + 1)))
        received.append(harness.add(short(request, refs[rng.integers(len(refs))])))
        for _ in range(rng.integers(3)):
            harness.step()
            harness.core._scheduler.check_integrity()
    harness.drain()
    harness.core._scheduler.check_integrity()
    assert harness.core._scheduler._loras.num_pinned == 0
    assert len(harness.core.loras._loaded) <= 2, "the host keeps what the device has"
    assert all(stream.ended for stream in received)
    assert {stream.error_code for stream in received} <= {None, "CANCELLED", "UNKNOWN_LORA"}


def test_a_request_that_is_cancelled_while_its_adapter_is_read_takes_nothing(tiny_checkpoints, root):
    folder = tiny_checkpoints["2"]
    ref = add_adapter(root, load_config(folder), "x")
    harness = Harness(folder, settings(root))
    core = harness.core
    loading: Future = Future()
    core.loras.get = lambda ref: loading
    request = harness.prepare(short(crowd(1)[0], ref))
    assert core.add(7, request) is loading
    assert (core.stats().waiting, core.has_work) == (1, False)
    core.cancel(7)
    [(stream_id, failed)] = core.take_events()
    assert (stream_id, failed.error.code.value) == (7, "CANCELLED")
    core.enter(7)
    assert core.stats().waiting == 0
    assert not core.take_events()


def test_a_batch_without_adapters_knows_nothing_of_them(tiny_checkpoints, root, monkeypatch):
    harness = Harness(tiny_checkpoints["2"], settings(root))
    lora, received = harness.core.runner.model.lora, harness.add(short(crowd(2)[1], None))
    with monkeypatch.context() as patch:
        patch.setattr(lora, "rows", lambda rows: 1 / 0)
        harness.step()  # encodes its audio
        harness.step()
    assert len(received.patches) == 1
    other = harness.add(short(crowd(1)[0], add_adapter(root, harness.model, "x")))
    harness.drain()
    assert (received.error_code, other.error_code) == (None, None)


def test_no_adapters_are_served_without_their_folder(tiny_checkpoints, root):
    folder = tiny_checkpoints["2"]
    ref = add_adapter(root, load_config(folder), "x")
    for config in (SMALL, settings(root, max_loras=0)):
        harness = Harness(folder, config)
        assert harness.core.runner.model.lora is None
        assert harness.run(short(crowd(1)[0], ref)).error_code == "UNKNOWN_LORA"
    with pytest.raises(ConfigError, match="lora_root: there is no folder .*missing"):
        Harness(folder, settings(root / "missing"))
