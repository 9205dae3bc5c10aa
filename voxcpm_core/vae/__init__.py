"""The AudioVAE: waveform to latents, and latents to audio with per-stream state. As exact as float32."""

from voxcpm_core.vae.chunks import ChunkedEncoder
from voxcpm_core.vae.decoder import StreamDecoder, VaeDecoder
from voxcpm_core.vae.encoder import VaeEncoder
from voxcpm_core.vae.state import StateLayout, StateSlice

__all__ = ["ChunkedEncoder", "StateLayout", "StateSlice", "StreamDecoder", "VaeDecoder", "VaeEncoder"]
