"""From what `VOXCPM_MODEL` says to a checkpoint folder."""

from __future__ import annotations

import re
from pathlib import Path

from voxcpm_core.errors import ConfigError, shown
from voxcpm_core.paths import as_path

DEMO = "demo"
DEMO_FOLDER = Path(__file__).resolve().parents[1] / "data" / "demo"
_CHOICES = "give a checkpoint folder, a Hugging Face id such as openbmb/VoxCPM2, or demo"
_HUB_ID = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[\w-][\w.-]*(/[\w-][\w.-]*)*))?")
_HUB_FILES = ("*.json", "*.safetensors", "pytorch_model.bin", "audiovae.pth")


def locate(model: str) -> Path:
    """The folder of "demo", of an existing path, or of a Hugging Face id (downloaded, or from the local cache).

    An id may end with "@" and a branch, tag or commit.

    The hub's own settings hold: HF_HUB_OFFLINE, HF_HOME, HF_TOKEN, HF_ENDPOINT. Raises ConfigError saying what was
    tried and how to get a checkpoint.
    """
    if not model:
        raise ConfigError(f"model is not set; {_CHOICES}")
    if model == DEMO:
        return DEMO_FOLDER
    try:
        folder = as_path(model).expanduser()
        if folder.is_dir():
            return folder
        if folder.exists():
            raise ConfigError(f"model {shown(model)}: is a file, not a folder; {_CHOICES}")
    except (OSError, RuntimeError, ValueError) as error:  # too long, not to be looked into, nobody's home, a zero byte
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"model {shown(model)}: cannot be looked at: {reason}; {_CHOICES}") from None
    found = _HUB_ID.fullmatch(model)
    if found is None:
        raise ConfigError(f"model {shown(model)}: there is no such folder, and it is not a Hugging Face id; {_CHOICES}")
    return _from_hub(model, found["repo"], found["revision"])


def _from_hub(model: str, repo: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download  # 0.3 s to import, in each process that opens a checkpoint

    try:
        return Path(snapshot_download(repo, revision=revision, allow_patterns=list(_HUB_FILES)))
    except Exception as error:  # besides its own errors the hub raises those of its HTTP library, which has changed
        reason = str(error).strip().split("\n", 1)[0]
        download = f"hf download {repo}" + (f" --revision {revision}" if revision else "")
        raise ConfigError(
            f"model {shown(model)}: there is no such folder, and Hugging Face gave no snapshot "
            f"({type(error).__name__}: {reason}); on a machine with network, `{download}` fills the cache"
        ) from None
