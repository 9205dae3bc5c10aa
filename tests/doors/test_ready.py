"""Whether the model is ready, as servers ask that can: on the class that Triton makes instances of."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.doors.conftest import Loaded
from tests.doors.test_doors import finished, wait_until
from tests.serving.fake_triton import FakeBackend
from tests.serving.served import speech

MODEL_FILE = Path(__file__).parents[2] / "model_repository" / "voxcpm" / "1" / "model.py"


@pytest.fixture
def models(load: Callable[..., Loaded], monkeypatch: pytest.MonkeyPatch) -> tuple[Loaded, list[Any]]:
    """One load of the model, and the models that Triton would hold: the engine's first."""
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", FakeBackend())
    spec = importlib.util.spec_from_file_location("voxcpm_model", MODEL_FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    loaded = load()
    made = []
    for role in (loaded.host, *loaded.doors):
        made.append(module.TritonPythonModel())
        made[-1]._instance = role
    return loaded, made


def all_say(models: list[Any], is_ready: bool) -> bool:
    return all(model.is_ready() is is_ready for model in models)


def test_all_instances_say_what_the_engine_says(models: tuple[Loaded, list[Any]]):
    loaded, made = models
    wait_until(lambda: all_say(made, True))
    loaded.engine.is_lost = True
    assert all_say(made, False)
    loaded.engine.is_lost = False
    assert all_say(made, True)
    loaded.host._adapter.drain.begin(None)
    assert all_say(made, False)


def test_a_door_without_an_engine_is_not_ready(models: tuple[Loaded, list[Any]]):
    loaded, made = models
    wait_until(lambda: all_say(made, True))
    served = speech("served")
    loaded.doors[0].execute([served])
    assert finished(served).errors == []
    loaded.host.close()
    assert all_say(made, False)


def test_an_engine_that_is_silent_is_not_ready(models: tuple[Loaded, list[Any]], monkeypatch: pytest.MonkeyPatch):
    loaded, (_, *doors) = models
    wait_until(lambda: all_say(doors, True))

    def silent(self: object, op: str) -> None:
        raise TimeoutError

    monkeypatch.setattr("voxcpm_core.local.client.LocalClient.ask", silent)
    assert all_say(doors, False)
