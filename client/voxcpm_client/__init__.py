"""Client of VoxCPM on Triton: streamed speech in a few lines, with tritonclient and numpy alone."""

from voxcpm_client import errors
from voxcpm_client.client import Client
from voxcpm_client.errors import VoxError
from voxcpm_client.functions import astream, astream_text, asynthesize, stream, stream_text, synthesize
from voxcpm_client.playback import play
from voxcpm_client.types import Chunk, Speech, SpeechOptions, Voice

__all__ = [
    "Chunk",
    "Client",
    "Speech",
    "SpeechOptions",
    "Voice",
    "VoxError",
    "astream",
    "astream_text",
    "asynthesize",
    "errors",
    "play",
    "stream",
    "stream_text",
    "synthesize",
]
