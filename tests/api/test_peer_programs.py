"""Programs written for nano-vllm-voxcpm 2.0.5 run with nothing but their import changed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile

from tests.noise_voice import NOISE

PROGRAMS = Path(__file__).parent / "programs"
THEIR_IMPORT, OUR_IMPORT = "from nanovllm_voxcpm import VoxCPM", "from voxcpm_core import VoxCPM"


@pytest.mark.parametrize("name", ["peer_sync", "peer_async"])
def test_peer_program(name, tmp_path):
    program = (PROGRAMS / f"{name}.py").read_text(encoding="utf-8")
    assert program.count(THEIR_IMPORT) == 1
    path = tmp_path / "program.py"
    path.write_text(program.replace(THEIR_IMPORT, OUR_IMPORT), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, str(path), NOISE, '["cpu"]', str(tmp_path)],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert soundfile.info(tmp_path / "plain.wav").samplerate == 48000
    assert soundfile.info(tmp_path / "continued.wav").frames == 6 * 7680
