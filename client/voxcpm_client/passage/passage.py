"""What one passage is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from voxcpm_client.ensemble import format_from
from voxcpm_client.errors import InvalidParameter
from voxcpm_client.passage.arriving import ArrivingText
from voxcpm_client.passage.joiner import PcmJoiner, request_format
from voxcpm_client.passage.plan import PassagePlan


@dataclass(frozen=True)
class Passage:
    """The state of one passage while it is spoken."""

    text: ArrivingText
    plan: PassagePlan
    joiner: PcmJoiner
    ahead: int  # requests besides that of the sentence that is heard


def make_passage(
    model: str, options: Mapping[str, Any], request_id: str, ahead: int, max_chars: int, first_max_chars: int
) -> Passage:
    """Raises InvalidParameter for a format that cannot be joined and for bounds that cannot be kept."""
    if ahead < 0:
        raise InvalidParameter(f"ahead: expected at least 0, got {ahead!r}")
    audio_format = format_from(model, options)
    plan = PassagePlan(options, request_id, request_format(audio_format))
    joiner = PcmJoiner(audio_format, plan.seed, keep_latents=bool(options.get("return_latents")))
    return Passage(ArrivingText(max_chars, first_max_chars), plan, joiner, ahead)
