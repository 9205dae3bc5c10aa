"""Importing the official package without its audio libraries, and running it in silence."""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

import soundfile
import torch


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Swallow the package's prints, progress bars and warnings."""
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


def official_module(name: str) -> types.ModuleType:
    """Import `voxcpm` or a module of it, with stand-ins for the two audio libraries it imports at the top."""
    if name in sys.modules:
        return sys.modules[name]
    importlib.import_module("transformers")  # it looks for torchaudio and fails on a stand-in
    stand_ins = {"torchaudio": _torchaudio(), "librosa": _librosa()}
    replaced = {key: sys.modules.get(key) for key in stand_ins}
    sys.modules.update(stand_ins)
    try:
        with quiet():
            return importlib.import_module(name)
    finally:
        for key, module in replaced.items():
            if module is None:
                del sys.modules[key]
            else:
                sys.modules[key] = module


def _torchaudio() -> types.ModuleType:
    def load(path: str) -> tuple[torch.Tensor, int]:
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
        return torch.from_numpy(samples.T.copy()), rate  # [channels, samples]

    module = types.ModuleType("torchaudio")
    vars(module)["load"] = load
    return module


def _librosa() -> types.ModuleType:
    def load(path: str, sr: int, mono: bool) -> tuple[Any, int]:
        samples, rate = soundfile.read(path, dtype="float32")
        assert (rate, mono, samples.ndim) == (sr, True, 1), "the oracle is given mono audio at the encoder's rate"
        return samples, rate

    module = types.ModuleType("librosa")
    vars(module)["load"] = load
    return module
