"""Adapters from the Hugging Face hub, downloaded into the folder of all adapters."""

from __future__ import annotations

import re

from voxcpm_core.errors import invalid_parameter, shown
from voxcpm_core.lora.folder import CONFIG_FILE, WEIGHT_FILES
from voxcpm_core.paths import as_path

FOLDER = ".hub"  # in the folder of adapters
_URI = re.compile(r"hf://(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[\w.-]+))?")


def from_hub(root: str, uri: str) -> str:
    """Download "hf://owner/name" or "hf://owner/name@revision"; returns the path of its folder below `root`.

    Each commit has a folder of its own, so that what is registered stays as it was. Raises INVALID_PARAMETER.
    """
    found = _URI.fullmatch(uri)
    if found is None:
        raise invalid_parameter(f"uri: expected hf://owner/name[@revision] or demo://giant, got {shown(uri)}")
    from huggingface_hub import HfApi, snapshot_download  # 0.3 s to import, and many servers never do

    repo = found["repo"]
    try:
        commit = str(HfApi().model_info(repo, revision=found["revision"]).sha)
        path = f"{FOLDER}/{repo.replace('/', '--')}--{commit}"
        files = [CONFIG_FILE, *WEIGHT_FILES]
        snapshot_download(repo, revision=commit, allow_patterns=files, local_dir=as_path(root) / path)
    except Exception as error:  # besides its own errors the hub raises those of its HTTP library, which has changed
        raise invalid_parameter(f"uri: Hugging Face gave no {shown(uri)} ({type(error).__name__})") from None
    return path
