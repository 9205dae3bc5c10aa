"""A small checkpoint of random weights for tests that do not care what is said: 48 kHz, and several times real time."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path

from voxcpm_core.checkpoint.random_init import make_checkpoint

NOISE_FOLDER = Path(tempfile.mkdtemp(prefix="voxcpm-noise-"))
NOISE = str(NOISE_FOLDER)
atexit.register(shutil.rmtree, NOISE_FOLDER, ignore_errors=True)
make_checkpoint(NOISE_FOLDER, "noise")
