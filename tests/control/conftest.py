"""The light models beside instances on engines without a model."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.serving.fake_triton import FakeBackend, FakeRequest, FakeSender, TritonError, text
from tests.serving.loaded import Loaded
from tests.serving.served import GENEROUS_S, MODEL
from voxcpm_core.checkpoint.tiny_tokenizer import write_tokenizer
from voxcpm_core.control.blocking import Blocking, start_blocking
from voxcpm_core.control.models import start_control, start_encode
from voxcpm_core.control.unary import UnaryModel
from voxcpm_core.local.announced import announce
from voxcpm_core.local.status import InstanceName
from voxcpm_core.text.tokenizer import TextTokenizer

TOKEN = "s3cret-token"


class Light:
    """One of the light models, as Triton loads it."""

    def __init__(self, start: Any, environ: dict[str, str], parameters: dict[str, str]) -> None:
        self.backend = FakeBackend()
        config = {"parameters": {name: {"string_value": value} for name, value in parameters.items()}}
        self.model: UnaryModel | Blocking = start({"model_config": json.dumps(config)}, self.backend, environ)

    def run(self, inputs: dict[str, np.ndarray], **fields: Any) -> FakeSender:
        request = FakeRequest(inputs, sender=FakeSender(is_unary=True), **fields)
        self.model.execute([request])
        assert request.sender.final.wait(GENEROUS_S)
        assert request.sender.violations == []
        assert (request.sender.num_finals, len(request.sender.responses)) == (1, 1)
        return request.sender

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        sender = self.run({"request": text(json.dumps({"op": op, **fields}))})
        assert sender.errors == []
        answer: dict[str, Any] = json.loads(sender.chunks[0]["response"])
        return answer

    def refused(self, op: str, **fields: Any) -> TritonError:
        return self.run({"request": text(json.dumps({"op": op, **fields}))}).errors[0]

    def code_of(self, op: str, **fields: Any) -> str:
        return self.refused(op, **fields).message.split("]")[0].removeprefix("[")


class Fleet:
    """Starts instances and light models in one folder of sockets."""

    def __init__(self, stack: ExitStack, tokenizer: TextTokenizer, voices: Path) -> None:
        self._stack = stack
        self._tokenizer = tokenizer
        self.voices = voices

    def load(self, name: str = "voxcpm", instance: str = "voxcpm_0", version: str = "1", **options: Any) -> Loaded:
        announce(name, os.getppid())  # as the start of an engine does
        chosen = {"voices": str(self.voices), **options}
        loaded = Loaded(self._tokenizer, name=InstanceName(name, version, instance), **chosen)
        self._stack.callback(loaded.close)
        return loaded

    def control(self, environ: dict[str, str] | None = None, **parameters: str) -> Light:
        environ = {"VOXCPM_ADMIN_TOKEN": TOKEN} if environ is None else environ
        return self._light(Light(start_control, environ, parameters))

    def encode(self) -> Light:
        return self._light(Light(start_encode, {}, {}))

    def blocking(self, **environ: str) -> Light:
        return self._light(Light(start_blocking, environ, {}))

    def _light(self, light: Light) -> Light:
        self._stack.callback(light.model.close)
        return light


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> TextTokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder, MODEL.vocab_size)
    return TextTokenizer.from_folder(folder)


class Settled(NamedTuple):
    """One engine and both light models, for what is refused: starting an engine starts processes."""

    control: Light
    encode: Light
    voices: Path


@pytest.fixture(scope="module")
def settled(tokenizer: TextTokenizer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settled]:
    folder = tmp_path_factory.mktemp("settled")
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv("XDG_RUNTIME_DIR", str(folder))
        fleet = Fleet(stack, tokenizer, folder / "voices")
        fleet.load()
        yield Settled(fleet.control(), fleet.encode(), fleet.voices)


@pytest.fixture
def fleet(tokenizer: TextTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    before = set(threading.enumerate())
    with ExitStack() as stack:
        yield Fleet(stack, tokenizer, tmp_path / "voices")
    assert not [each for each in set(threading.enumerate()) - before if each.name.startswith("voxcpm-unary")]
