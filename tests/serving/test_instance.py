"""A loaded instance: it answers Triton, and on its socket the other models of the server."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving.fake_engine import FakeEngine
from tests.serving.fake_triton import FakeBackend
from tests.serving.served import GENEROUS_S, MODEL, speech
from voxcpm_core.config.engine import EngineConfig
from voxcpm_core.doors.place import InstancePlace
from voxcpm_core.local.client import connect_instances
from voxcpm_core.local.status import InstanceName
from voxcpm_core.serving.instance import Instance
from voxcpm_core.text.tokenizer import TextTokenizer

NAME = InstanceName("voxcpm", "3", "voxcpm_0")
ALONE = InstancePlace("voxcpm", "3", "voxcpm_0", "KIND_CPU 0", index=0, count=1)


@pytest.fixture(autouse=True)
def runtime_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend()


@pytest.fixture
def instance(tokenizer: TextTokenizer, backend: FakeBackend, runtime_folder: Path) -> Iterator[Instance]:
    engine = FakeEngine(MODEL, tokenizer, EngineConfig(model="fake", max_running=4, max_waiting=2))
    instance = Instance(NAME, ALONE, engine, backend)
    yield instance
    instance.close()


def test_status_over_the_socket_while_it_serves(instance: Instance):
    (client,) = connect_instances("voxcpm", os.getppid())
    with client:
        status = client.ask("status")
        assert (status["version"], status["instance"], status["ready"]) == ("3", "voxcpm_0", True)
        assert (status["running"], status["max_running"], status["max_waiting"]) == (0, 4, 2)
        request = speech()
        instance.execute([request])
        assert request.sender.final.wait(GENEROUS_S)


def test_close_ends_the_socket_with_the_rest(instance: Instance):
    instance.close()
    assert connect_instances("voxcpm", os.getppid()) == []
    assert not any(thread.name == "voxcpm-local" for thread in threading.enumerate())


def test_speech_does_not_need_the_socket(runtime_folder: Path, tokenizer: TextTokenizer, backend: FakeBackend):
    (runtime_folder / f"voxcpm-{os.geteuid()}").mkdir(mode=0o755)
    instance = Instance(NAME, ALONE, FakeEngine(MODEL, tokenizer, EngineConfig(model="fake")), backend)
    try:
        (warning,) = backend.Logger.lines
        assert "mode 0700" in warning
        request = speech()
        instance.execute([request])
        assert request.sender.final.wait(GENEROUS_S)
    finally:
        instance.close()
