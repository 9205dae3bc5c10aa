"""One loaded instance of the Triton model: its adapter, and its socket for the other models of the server."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from voxcpm_core.handle import EngineHandle
from voxcpm_core.local.server import LocalServer
from voxcpm_core.local.status import InstanceName, status
from voxcpm_core.serving.adapter import Adapter


class Instance:
    """What Triton calls. Runs in the stub, whose parent is the tritonserver."""

    def __init__(self, name: InstanceName, engine: EngineHandle, pb_utils: Any) -> None:
        self._adapter = Adapter(engine, pb_utils)
        self._local = _local_server(name, engine, pb_utils.Logger)

    def execute(self, requests: Iterable[Any]) -> None:
        """See `Adapter.execute`."""
        self._adapter.execute(requests)

    def close(self) -> None:
        """End the streams with an error, the engine, the socket and all threads."""
        if self._local is not None:
            self._local.close()
        self._adapter.close()


def _local_server(name: InstanceName, engine: EngineHandle, logger: Any) -> LocalServer | None:
    operations = {"status": lambda request: status(name, engine)}
    try:
        return LocalServer(name.model, operations, os.getppid(), logger.log_error)
    except OSError as error:  # speech does not need it
        logger.log_warn(f"no local socket, so this instance cannot be asked for its status: {error}")
        return None
