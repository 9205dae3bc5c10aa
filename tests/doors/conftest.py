"""An instance with an engine without a model, and doors to it, all in this process and over real sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.serving.fake_engine import FakeEngine
from tests.serving.fake_triton import FakeBackend
from tests.serving.served import MODEL
from voxcpm_core.checkpoint.tiny_tokenizer import write_tokenizer
from voxcpm_core.config.engine import EngineConfig
from voxcpm_core.doors.door import Door
from voxcpm_core.doors.place import InstancePlace
from voxcpm_core.local.status import InstanceName
from voxcpm_core.serving.instance import Instance
from voxcpm_core.text.tokenizer import TextTokenizer

COUNT = 4


def place(index: int) -> InstancePlace:
    return InstancePlace("voxcpm", "1", "voxcpm_0", "KIND_CPU 0", index, COUNT)


class Loaded:
    """One load of the model."""

    def __init__(self, tokenizer: TextTokenizer, step_s: float, settings: dict[str, int | str]) -> None:
        self.backend = FakeBackend()
        self.engine = FakeEngine(MODEL, tokenizer, EngineConfig(model="fake", **settings), step_s)
        self.host = Instance(InstanceName("voxcpm", "1", "voxcpm_0_0"), place(0), self.engine, self.backend)
        self.doors: list[Door] = []

    def open_doors(self) -> None:
        self.doors = [Door(place(index), self.backend) for index in range(1, COUNT)]

    def close(self) -> None:
        for door in self.doors:
            door.close()
        self.host.close()


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> TextTokenizer:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder, MODEL.vocab_size)
    return TextTokenizer.from_folder(folder)


@pytest.fixture
def load(
    tokenizer: TextTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Loaded]]:
    """`load(step_s=0.01, max_running=1)`; all close when the test ends. Without doors they can be opened later."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with ExitStack() as stack:

        def start(step_s: float = 0.0, has_doors: bool = True, **settings: int | str) -> Loaded:
            loaded = Loaded(tokenizer, step_s, settings)
            stack.callback(loaded.close)
            if has_doors:
                loaded.open_doors()
            return loaded

        yield start
