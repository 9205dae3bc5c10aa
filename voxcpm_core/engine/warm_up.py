"""The first generations of an engine, before any caller's: they load kernels and prove that it works."""

from __future__ import annotations

from typing import Any

import numpy as np

from voxcpm_core.config import EngineConfig, ModelConfig
from voxcpm_core.engine.core import EngineCore
from voxcpm_core.errors import ConfigError, RequestError, StartupError
from voxcpm_core.prepare import prepare
from voxcpm_core.text.tokenizer import TextTokenizer
from voxcpm_core.types import Condition, Failed, SamplingParams, SpeechRequest

NUM_PATCHES = 2


def warm_up(core: EngineCore, model: ModelConfig, config: EngineConfig, tokenizer: TextTokenizer) -> None:
    """Generate a few patches in every mode that the model has.

    Raises ConfigError when the settings leave no room for a short sentence, StartupError when generation fails.
    """
    modes = _modes(model)
    for index, mode in enumerate(modes):
        _add(core, index, model, config, tokenizer, mode)
    core.runner.capture()
    _finish(core)
    if model.supports_reference:
        _add(core, len(modes), model, config, tokenizer, modes[-1])  # which is known now
        _finish(core)
    core.forget_voices()


def _add(
    core: EngineCore, index: int, model: ModelConfig, config: EngineConfig, tokenizer: TextTokenizer,
    mode: dict[str, Any],
) -> None:
    params = SamplingParams(max_length=NUM_PATCHES, seed=0)
    request = SpeechRequest(target_text="warm up", request_id="warm-up", params=params, **mode)
    try:
        core.add(-1 - index, prepare(request, model, config, tokenizer, lambda: 0))
    except RequestError as error:
        raise ConfigError(f"the settings admit no request: {error}") from None


def _finish(core: EngineCore) -> None:
    while core.has_work:
        core.step()
        for event in core.take_events():
            if isinstance(event, tuple) and isinstance(event[1], Failed):
                raise StartupError(f"the model does not generate: {event[1].error}; the log names the place")


def _modes(model: ModelConfig) -> list[dict[str, Any]]:
    silence = Condition(waveform=np.zeros(model.context_patches * model.encoder_samples_per_patch, dtype=np.float32))
    modes: list[dict[str, Any]] = [{}, {"prompt": silence, "prompt_text": "warm"}]
    return [*modes, {"reference": silence}] if model.supports_reference else modes
