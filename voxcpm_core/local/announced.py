"""Which models a tritonserver has begun to load: what tells a wrong name from a model that is not ready."""

from __future__ import annotations

from voxcpm_core.local.folder import digest, own_folder

_SUFFIX = ".announced"


def announce(model: str, server_pid: int) -> None:
    """Remember the name for as long as the tritonserver lives, also when the model is unloaded. Raises OSError."""
    with own_folder(server_pid, create=True) as folder:
        (folder / f"{digest(model)}{_SUFFIX}").touch(mode=0o600)


def is_wrong_name(model: str, server_pid: int) -> bool:
    """Whether models have been announced and none of that name. Raises OSError as `own_folder` does."""
    try:
        with own_folder(server_pid, create=False) as folder:
            names = {path.stem for path in folder.glob(f"*{_SUFFIX}")}
    except FileNotFoundError:  # nothing has been loaded yet
        return False
    return bool(names) and digest(model) not in names
