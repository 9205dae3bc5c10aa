"""The library stays light: an application that only calls a server needs neither the engine nor the command line."""

from __future__ import annotations

import subprocess
import sys


def test_the_library_imports_neither_the_engine_nor_the_command_line() -> None:
    script = (
        "import sys, voxcpm_client; "
        "print(sorted({'torch', 'voxcpm_core', 'typer', 'rich', 'soundfile', 'sounddevice'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
