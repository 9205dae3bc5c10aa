"""Real servers for tests: on a checkpoint of random weights on the CPU, unless settings say otherwise."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path
from types import TracebackType

import pytest

from tests.noise_voice import NOISE
from tests.triton_crashes import note_loss
from voxcpm_client.server import ServerError, TritonServer, find_installation, find_repository

# Most tests need the engine alone, and each further model is a process that delays a server's start.
ENGINE_REPOSITORY = Path(tempfile.mkdtemp(prefix="voxcpm-models-"))
atexit.register(shutil.rmtree, ENGINE_REPOSITORY, ignore_errors=True)
(ENGINE_REPOSITORY / "voxcpm").symlink_to(find_repository() / "voxcpm", target_is_directory=True)

DOUBLE_REPOSITORY = Path(__file__).parent / "fixtures" / "double_repository"
ADMIN_TOKEN = "the-token-of-the-tests"
MAX_BLOCKING = 16
SETTINGS = {"VOXCPM_MODEL": NOISE, "VOXCPM_DEVICE": "cpu"}


class ShortLivedServer(TritonServer):
    """One that is killed when its test is over: to end by itself takes tritonserver 3 s at the least."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            note_loss(self)
        self.stop(grace_s=0)


def require_installation(environ: dict[str, str]) -> None:
    """Skip the test where no tritonserver can run, as on Python 3.13."""
    try:
        find_installation(environ)
    except ServerError as error:
        pytest.skip(str(error))


def make_server(
    log_file: Path, *, repository: Path | None = None, arguments: tuple[str, ...] = (), **settings: str
) -> TritonServer:
    """A server that is not started; use it as a context manager to get one that is ready, and killed in the end."""
    return ShortLivedServer(
        repository or ENGINE_REPOSITORY,
        settings={**SETTINGS, **settings},
        log_file=log_file,
        # A cancelled stream can keep Triton 2.51 from unloading its model; the server then ends by this time-out.
        arguments=("--exit-timeout-secs=5", *arguments),
    )


def with_one_instance(folder: Path) -> Path:
    """A copy of the repository in `folder` whose model has one instance, which is sooner there than four."""
    repository: Path = shutil.copytree(find_repository(), folder / "models")
    config = repository / "voxcpm" / "config.pbtxt"
    shipped = config.read_text()
    config.write_text(shipped.replace("count: 4", "count: 1"))
    assert config.read_text() != shipped
    return repository
