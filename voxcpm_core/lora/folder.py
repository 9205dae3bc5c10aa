"""The folder of one adapter, below the folder of all: nothing outside of that is ever read. No torch here."""

from __future__ import annotations

import hashlib
from pathlib import Path

from voxcpm_core.errors import ErrorCode, RequestError, invalid_parameter, shown
from voxcpm_core.paths import as_path, as_text

CONFIG_FILE = "lora_config.json"
WEIGHT_FILES = ("lora_weights.safetensors", "lora_weights.ckpt")  # the first that is there counts
READ_BYTES = 1 << 20


class LoraFolder:
    """Raises INVALID_PARAMETER for a path that leads out of `root`, by `..` or a link, and for one to no folder."""

    def __init__(self, root: str, path: str) -> None:
        self._root = as_path(root).resolve()
        self._path = path
        if ".." in Path(path).parts:
            raise self._no_folder()
        try:
            self.folder = (self._root / as_path(path)).resolve()
            is_folder = self.folder.is_dir()
        except (OSError, RuntimeError, ValueError):  # too long, a circle of links, a zero byte
            raise self._no_folder() from None
        if not self._is_inside(self.folder) or not is_folder:
            raise self._no_folder()
        for name in (CONFIG_FILE, *WEIGHT_FILES):
            if not self._is_inside((self.folder / name).resolve()):
                raise invalid_parameter(f"path: {name} of {shown(path)} leads out of lora_root")

    @property
    def path(self) -> str:
        """Of the folder below the root, without links."""
        return as_text(self.folder.relative_to(self._root))

    def digests(self) -> tuple[str, str]:
        """Of all files, equal for equal ones, and the SHA-256 of the weights.

        Raises INVALID_PARAMETER when one cannot be read.
        """
        weights = next((name for name in WEIGHT_FILES if (self.folder / name).is_file()), WEIGHT_FILES[0])
        weights_sha256 = self._sha256(weights)
        return hashlib.sha256(f"{weights_sha256} {self._sha256(CONFIG_FILE)}".encode()).hexdigest(), weights_sha256

    def without_folder(self, message: str) -> str:
        """A message that names files, as callers may see it."""
        return message.replace(f"{self.folder}/", "").replace(str(self.folder), shown(self._path))

    def _sha256(self, name: str) -> str:
        try:
            digest = hashlib.sha256()
            with (self.folder / name).open("rb") as file:
                while piece := file.read(READ_BYTES):
                    digest.update(piece)
            return digest.hexdigest()
        except OSError as error:
            raise invalid_parameter(f"path: {name} of {shown(self._path)}: {error.strerror}") from None

    def _is_inside(self, path: Path) -> bool:
        return self._root in path.parents

    def _no_folder(self) -> RequestError:
        return RequestError(ErrorCode.INVALID_PARAMETER, f"path: there is no folder {shown(self._path)} in lora_root")
