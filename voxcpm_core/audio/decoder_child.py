"""The program of a decoder's child process: `decoder_child.py SAMPLE_RATE MAX_SECONDS DESCRIPTOR`."""

from __future__ import annotations

import sys

from voxcpm_core.audio.decode import decode_audio
from voxcpm_core.children.serve import serve

MEMORY_BYTES = 4 << 30

if __name__ == "__main__":
    sample_rate, max_seconds = int(sys.argv[1]), float(sys.argv[2])
    serve(lambda data: decode_audio(data, sample_rate, max_seconds).tobytes(), MEMORY_BYTES)
