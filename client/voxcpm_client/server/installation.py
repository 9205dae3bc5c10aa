"""A tritonserver to run: the one on PATH with its own backends, else the one that nvidia-pytriton brings."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from voxcpm_client.server import bundled


@dataclass(frozen=True)
class Installation:
    """A server binary and what it needs around it."""

    binary: Path
    environment: Mapping[str, str]  # set on top of the caller's
    bundled: bool  # nvidia-pytriton's, whose Python backend must be laid out first

    def lay_out_backends(self, folder: Path) -> list[str]:
        """Make the backends reachable, in `folder` where needed, and return the server's arguments for them."""
        if not self.bundled:
            return []
        bundled.lay_out_backends(folder)
        return [f"--backend-directory={folder}"]


def find_installation(environ: Mapping[str, str]) -> Installation:
    """The server that this machine has. Raises ServerError saying what to install when it has none."""
    on_path = shutil.which("tritonserver", path=environ.get("PATH"))
    if on_path is not None:
        return Installation(Path(on_path), {}, bundled=False)
    bundled.check_interpreter()
    return Installation(bundled.server_binary(), bundled.environment(environ), bundled=True)
