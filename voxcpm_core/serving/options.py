"""How a caller wants the answer of a request."""

from __future__ import annotations

from dataclasses import dataclass

from voxcpm_core.audio.encode import DEFAULT_FORMAT

ENCODINGS = ("raw", "base64")


@dataclass(frozen=True)
class OutputOptions:
    """Output options, validated."""

    format: str = DEFAULT_FORMAT
    bitrate: int | None = None  # kbit/s
    sample_rate: int | None = None  # Hz; None: the model's own
    deadline_ms: int | None = None  # counted from when the model received the request
    stream: bool = True  # False: exactly one data response
    base64: bool = False
    wants_audio: bool = True  # False: latents only
    wants_latents: bool = False
    is_chained: bool = False  # latents go to another model of the ensemble, which makes mp3 of them
