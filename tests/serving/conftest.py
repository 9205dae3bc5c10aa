"""The adapter on an engine without a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.serving.served import MODEL, Served
from voxcpm_core.checkpoint.tiny_tokenizer import write_tokenizer
from voxcpm_core.text.tokenizer import TextTokenizer


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> TextTokenizer:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder, MODEL.vocab_size)
    return TextTokenizer.from_folder(folder)


@pytest.fixture
def serve(tokenizer: TextTokenizer) -> Iterator[Callable[..., Served]]:
    """Starts adapters with other settings: `serve(step_s=0.01, max_running=1)`; all close when the test ends."""
    served: list[Served] = []

    def start(step_s: float = 0.0, **settings: int | str) -> Served:
        served.append(Served(tokenizer, step_s, settings))
        return served[-1]

    yield start
    for each in served:
        each.adapter.close()
