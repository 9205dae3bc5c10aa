"""The utterances that training draws from, sorted by what they can stand for in a request."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from demo_voice.layouts import Ids

SILENT_FRAME = 0  # this latent stands for silence


@dataclass(frozen=True)
class Speech:
    """One utterance: its texts as tokens, and its latents by number."""

    speaker: str
    tempo: float
    plain: Ids
    unspaced: Ids  # as it is spelled right behind a full stop, without the space
    styled: Ids  # with the control text in front; empty when the utterance has none
    first_frame: int
    num_frames: int  # of whole patches
    num_heard_frames: int  # without the zeros that fill up the last patch

    def patches(self, patch_size: int) -> Ids:
        """Its frame numbers as a target or a reference has them. # [patches, P]"""
        frames: Ids = np.arange(self.first_frame, self.first_frame + self.num_frames)
        return frames.reshape(-1, patch_size)

    def prompt_patches(self, patch_size: int) -> Ids:
        """Its frame numbers as a prompt has them: speech up to the very end, silence in front. # [patches, P]"""
        silence = np.full(-self.num_heard_frames % patch_size, SILENT_FRAME)
        heard = np.arange(self.first_frame, self.first_frame + self.num_heard_frames)
        return np.concatenate((silence, heard)).reshape(-1, patch_size)


@dataclass
class Catalog:
    """All utterances so far."""

    default_speaker: str
    speeches: list[Speech] = field(default_factory=list)
    default: list[Speech] = field(default_factory=list)  # what zero-shot speech without a style sounds like
    styled: list[Speech] = field(default_factory=list)
    by_voice: dict[tuple[str, float], list[Speech]] = field(default_factory=dict)

    def add(self, speech: Speech) -> None:
        self.speeches.append(speech)
        self.by_voice.setdefault((speech.speaker, speech.tempo), []).append(speech)
        if speech.speaker == self.default_speaker and speech.tempo == 1.0:
            self.default.append(speech)
        if len(speech.styled):
            self.styled.append(speech)

    def voices(self) -> list[list[Speech]]:
        """The utterances of each speaker at each tempo that has two or more: one can be cloned from the other."""
        return [speeches for speeches in self.by_voice.values() if len(speeches) > 1]


def styled_text(style: str, text: str, spaced: bool) -> str:
    """A control text in front of a text, as users type it, with a space between them or without."""
    return f"({style.strip('()')}){' ' * spaced}{text}"
