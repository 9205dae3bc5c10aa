"""Playing chunks as they come: through `sounddevice`, or through a player program that is installed."""

from voxcpm_client.playback.players import find_player
from voxcpm_client.playback.playing import play, played

__all__ = ["find_player", "play", "played"]
