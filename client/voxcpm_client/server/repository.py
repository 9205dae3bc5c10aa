"""Where the package's model repository lies, and how to name a repository to tritonserver."""

from __future__ import annotations

import shlex
import site
import sysconfig
from pathlib import Path

from voxcpm_client.server.errors import ServerError

_MODEL = Path("voxcpm/config.pbtxt")


def find_repository() -> Path:
    """The checkout's that this file is in, else the wheel's shared data. Raises ServerError when there is none."""
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


def path_for_shell(repository: Path, link: Path) -> Path:
    """`repository`, or where its name holds blanks and the like, the symbolic link `link` to it.

    The Python backend starts its stubs by an unquoted shell command with the model's path.
    """
    if shlex.quote(str(repository)) == str(repository):
        return repository
    link.symlink_to(repository.resolve(), target_is_directory=True)
    return link
