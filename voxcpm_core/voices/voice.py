"""What a registered voice is."""

from __future__ import annotations

import hashlib
import json
import secrets
import unicodedata
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timezone
from typing import Any

from voxcpm_core.config.model import ModelConfig
from voxcpm_core.errors import invalid_parameter, shown
from voxcpm_core.types import FloatArray

MAX_NAME_CHARS = 64
# Control characters, halves of characters, line and paragraph separators: a listing must stay one line a voice.
_REFUSED_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})


def checked_name(name: object) -> str:
    """The name of a new voice: any text of 1 to 64 characters on one line. Raises INVALID_PARAMETER."""
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME_CHARS or not name.strip():
        raise invalid_parameter(f"name: expected 1 to {MAX_NAME_CHARS} characters, not all blank, got {shown(name)}")
    if any(unicodedata.category(char) in _REFUSED_CATEGORIES for char in name):
        raise invalid_parameter(f"name: expected no control characters and no line breaks, got {shown(name)}")
    return name


def drawn_name() -> str:
    """A name for a voice that was given none."""
    return f"voice-{secrets.token_hex(8)}"


def model_fingerprint(model: ModelConfig) -> str:
    """What a model has in common with all others that understand its latents."""
    rate = model.vae.encoder_sample_rate
    return f"{model.architecture}, {rate} Hz, {model.feat_dim} features, {model.patch_size} frames a patch"


@dataclass(frozen=True)
class VoiceRecord:
    """All of a voice but its latents; what its JSON file holds."""

    name: str
    kind: str  # "prompt", "reference" or "both"
    seconds: float  # of audio, prompt and reference together
    created: str  # UTC, ISO 8601
    model: str  # `model_fingerprint` of the model whose latents it has
    prompt_text: str  # transcript of the prompt; "" without one
    digest: str  # SHA-256 of what conditions a request: latents and transcript

    def listed(self) -> dict[str, Any]:
        """What a list of voices tells of it; the transcript is the caller's own text, and in no list."""
        shown = {name: getattr(self, name) for name in ("name", "kind", "seconds", "created")}
        return {**shown, "made_for": self.model}

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), ensure_ascii=False, indent=1).encode()

    @classmethod
    def from_json(cls, data: bytes) -> VoiceRecord:
        """Raises ValueError for anything but a record; keys of later versions are left alone."""
        values = json.loads(data)
        wanted = {field.name: float if field.name == "seconds" else str for field in fields(cls)}
        if not isinstance(values, dict) or not all(type(values.get(name)) is kind for name, kind in wanted.items()):
            raise ValueError("not the record of a voice")
        return cls(**{name: values[name] for name in wanted})


@dataclass(frozen=True)
class Voice:
    """A voice with its latents, at least one of the two; nobody may write into them."""

    record: VoiceRecord
    prompt: FloatArray | None  # [frames, feat_dim], filled up on the left
    reference: FloatArray | None  # [frames, feat_dim], filled up on the right

    @classmethod
    def make(
        cls, name: str, model: ModelConfig, prompt: FloatArray | None, prompt_text: str, reference: FloatArray | None
    ) -> Voice:
        """A new voice of checked latents [frames, feat_dim]."""
        given = {"prompt": prompt, "reference": reference}
        kinds = [kind for kind, latents in given.items() if latents is not None]
        num_frames = sum(len(latents) for latents in given.values() if latents is not None)
        record = VoiceRecord(
            name=name,
            kind="both" if len(kinds) == 2 else kinds[0],
            seconds=round(num_frames * model.vae.hop_length / model.vae.encoder_sample_rate, 3),
            created=datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
            model=model_fingerprint(model),
            prompt_text=prompt_text,
            digest=content_digest(prompt, prompt_text, reference),
        )
        return cls(record, prompt, reference)


def content_digest(prompt: FloatArray | None, prompt_text: str, reference: FloatArray | None) -> str:
    """Equal for two voices when they condition a request alike, whatever they are called."""
    digest = hashlib.sha256()
    for part in (prompt, reference):
        digest.update(b"none;" if part is None else f"{part.shape};".encode() + part.astype("<f4").tobytes())
    digest.update(prompt_text.encode())
    return digest.hexdigest()
