"""From what a caller asks to what the engine runs: every check that needs no decoding, and the resolved limits."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from numbers import Integral, Real

import numpy as np

from voxcpm_core.audio.condition import checked_condition
from voxcpm_core.config import EngineConfig, ModelConfig
from voxcpm_core.errors import ErrorCode, RequestError, shown
from voxcpm_core.text.clean import clean_text
from voxcpm_core.text.layout import AUDIO_START, num_prefill_positions, num_voice_positions
from voxcpm_core.text.tokenizer import TextTokenizer
from voxcpm_core.types import Condition, EngineRequest, SamplingParams, SpeechRequest

DRAWN_SEED_BOUND = (1 << 53) - 16  # JSON clients read numbers up to 2^53 exactly; retries go a little further
CAP_PATCHES_PER_TOKEN, CAP_EXTRA_PATCHES = 6, 10


def random_seed() -> int:
    """A seed for a request that brings none."""
    return secrets.randbelow(DRAWN_SEED_BOUND)


def prepare(
    request: SpeechRequest,
    model: ModelConfig,
    engine: EngineConfig,
    tokenizer: TextTokenizer,
    draw_seed: Callable[[], int] = random_seed,
) -> EngineRequest:
    """Validate a request and resolve its limits; raises RequestError with the code of the first fault.

    The order is text, conflicts, numbers, audio, size: what is cheap and most likely wrong comes first.
    """
    cleaned = clean_text(request.target_text)
    if not cleaned.strip():
        raise RequestError(ErrorCode.INVALID_TEXT, "target_text is empty")
    _check_conflicts(request, model)
    _check_params(request.params, engine)
    prompt = _checked("prompt", request.prompt, model, engine)
    reference = _checked("reference", request.reference, model, engine)
    text = (request.prompt_text + cleaned).strip()
    token_ids = (*_tokens(text, tokenizer, engine), AUDIO_START)
    limit = engine.num_positions(model)
    num_prefill = num_prefill_positions(len(token_ids), _num_patches(prompt, model), _num_patches(reference, model))
    if num_prefill >= limit:
        raise RequestError(
            ErrorCode.TOO_LARGE, f"text and audio take {num_prefill} positions, at most {limit - 1} can be held"
        )
    params = request.params
    # Most requests have no prompt, and tokenising is most of what this function does.
    num_target_tokens = count_target_tokens(request, tokenizer) if request.prompt_text else len(token_ids) - 1
    return EngineRequest(
        request_id=request.request_id,
        token_ids=token_ids,
        prompt=prompt,
        reference=reference,
        num_prefill=num_prefill,
        max_patches=_max_patches(params, num_target_tokens, limit - num_prefill),
        min_length=int(params.min_length),
        ignore_stop=bool(params.ignore_stop),
        cfg_value=float(params.cfg_value),
        temperature=float(params.temperature),
        inference_timesteps=int(params.inference_timesteps),
        seed=draw_seed() if params.seed is None else int(params.seed),
        wants_audio=request.wants_audio,
        lora=request.lora,
        num_voice_positions=num_voice_positions(_num_patches(reference, model)),
    )


def count_target_tokens(request: SpeechRequest, tokenizer: TextTokenizer) -> int:
    """Tokens of the target text by itself, by which lengths are judged."""
    return len(tokenizer.encode(clean_text(request.target_text).strip()))


def _check_conflicts(request: SpeechRequest, model: ModelConfig) -> None:
    has_prompt_text = bool(request.prompt_text.strip())
    if request.prompt is not None and not has_prompt_text:
        raise RequestError(ErrorCode.CONFLICTING_INPUTS, "a prompt needs prompt_text, its transcript")
    if request.prompt is None and has_prompt_text:
        raise RequestError(ErrorCode.CONFLICTING_INPUTS, "prompt_text needs prompt_audio or prompt_latents")
    if request.reference is not None and not model.supports_reference:
        raise RequestError(ErrorCode.INVALID_PARAMETER, "this model has no reference condition; VoxCPM2 has")


def _check_params(params: SamplingParams, engine: EngineConfig) -> None:
    _check_real("cfg_value", params.cfg_value, 0.1, 10.0)
    _check_real("temperature", params.temperature, 0.0, 2.0)
    _check_integer("inference_timesteps", params.inference_timesteps, 2, engine.max_timesteps)
    _check_integer("min_length", params.min_length, 0, None)
    if params.max_length is not None:
        _check_integer("max_length", params.max_length, 1, None)
    _check_boolean("length_cap", params.length_cap)
    _check_boolean("ignore_stop", params.ignore_stop)
    if params.seed is not None:
        _check_integer("seed", params.seed, -(1 << 63), (1 << 63) - 1)


def _check_boolean(name: str, value: object) -> None:
    if not isinstance(value, (bool, np.bool_)):
        raise RequestError(ErrorCode.INVALID_PARAMETER, f"{name}: expected true or false, got {shown(value)}")


def _check_real(name: str, value: object, low: float, high: float) -> None:
    if not isinstance(value, Real) or isinstance(value, bool) or not low <= float(value) <= high:
        raise RequestError(ErrorCode.INVALID_PARAMETER, f"{name}: expected {low:g} to {high:g}, got {shown(value)}")


def _check_integer(name: str, value: object, low: int, high: int | None) -> None:
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_integer or value < low or (high is not None and value > high):  # type: ignore[operator]
        allowed = f"an integer >= {low}" if high is None else f"an integer from {low} to {high}"
        raise RequestError(ErrorCode.INVALID_PARAMETER, f"{name}: expected {allowed}, got {shown(value)}")


def _checked(role: str, condition: Condition | None, model: ModelConfig, engine: EngineConfig) -> Condition | None:
    return condition and checked_condition(role, condition, model, engine.max_audio_seconds)


def _num_patches(condition: Condition | None, model: ModelConfig) -> int:
    return condition.num_patches(model.patch_size, model.encoder_samples_per_patch) if condition else 0


def _tokens(text: str, tokenizer: TextTokenizer, engine: EngineConfig) -> list[int]:
    limit = engine.max_text_tokens
    message = f"the text has more than {limit} tokens (max_text_tokens), prompt_text counted in"
    too_long = RequestError(ErrorCode.TOO_LARGE, message)
    if len(text) > limit * tokenizer.max_token_chars:  # tells without tokenising a text of any length
        raise too_long
    try:
        token_ids = tokenizer.encode(text)
    except UnicodeError:
        raise RequestError(ErrorCode.INVALID_TEXT, "the text is not valid Unicode") from None
    if len(token_ids) > limit:
        raise too_long
    return token_ids


def _max_patches(params: SamplingParams, num_target_tokens: int, num_free_positions: int) -> int:
    limits = [num_free_positions]
    if params.max_length is not None:
        limits.append(int(params.max_length))
    if params.length_cap:
        limits.append(CAP_PATCHES_PER_TOKEN * num_target_tokens + CAP_EXTRA_PATCHES)
    return min(limits)
