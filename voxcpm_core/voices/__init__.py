"""Registered voices: prompts and references under a name, in a folder that every replica may share. No torch here."""

from voxcpm_core.voices.store import VoiceStore
from voxcpm_core.voices.voice import Voice, VoiceRecord

__all__ = ["Voice", "VoiceRecord", "VoiceStore"]
