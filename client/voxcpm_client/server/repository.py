"""Where the model repository lies: the checkout that this file is in, else the shared data of the wheel."""

from __future__ import annotations

import site
import sysconfig
from pathlib import Path

from voxcpm_client.server.errors import ServerError

_MODEL = Path("voxcpm/config.pbtxt")


def find_repository() -> Path:
    """The folder to give to tritonserver. Raises ServerError when the installation has none."""
    share = Path("share/voxcpm-triton/model_repository")
    candidates = [
        Path(__file__).resolve().parents[3] / "model_repository",
        Path(sysconfig.get_path("data")) / share,
        Path(site.getuserbase()) / share,
    ]
    for folder in candidates:
        if (folder / _MODEL).is_file():
            return folder
    raise ServerError(f"no model repository found; looked in {', '.join(map(str, candidates))}")
