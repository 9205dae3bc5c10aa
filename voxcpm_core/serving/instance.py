"""The loaded instance that has the engine: its adapter, its socket for other models of the server, its doors."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from voxcpm_core.doors.host import Doors, Guests
from voxcpm_core.doors.place import InstancePlace
from voxcpm_core.errors import StartupError, shutting_down
from voxcpm_core.handle import EngineHandle
from voxcpm_core.local.server import LocalServer, Takeover
from voxcpm_core.local.status import InstanceName
from voxcpm_core.metrics.instance import MeasuredEngine, start_metrics
from voxcpm_core.paths import printable
from voxcpm_core.serving.adapter import Adapter
from voxcpm_core.serving.operations import Operations
from voxcpm_core.tracing.tracing import NoTracing, Tracing


class Instance:
    """What Triton calls. Runs in the stub, whose parent is the tritonserver."""

    def __init__(
        self, name: InstanceName, place: InstancePlace, engine: MeasuredEngine, pb_utils: Any,
        tracing: Tracing | None = None,
    ) -> None:
        self._engine = engine
        self._tracing = tracing or NoTracing()
        self._metrics = start_metrics(name, engine, pb_utils)
        self._adapter = Adapter(engine, pb_utils, self._metrics, self._tracing)
        self._guests = Guests(self._adapter)
        takeovers = {"door": Doors(place, self._adapter).claim, "guest": self._guests.welcome}
        try:
            self._local = _local_server(name, engine, self._adapter, takeovers, pb_utils.Logger)
        except OSError as error:
            if place.count > 1:
                self._adapter.close()
                self._metrics.close()
                self._tracing.close()
                message = f"no local socket, which the instances that share an engine need: {error}"
                raise StartupError(f"{message}; set instance_group's count to 1 to do without") from None
            message = f"no local socket, so this instance cannot be asked for its status: {error}"
            pb_utils.Logger.log_warn(printable(message))
            self._local = None

    @property
    def is_ready(self) -> bool:
        """False while the engine's process is started again, and from the begin of a drain on."""
        return self._engine.is_ready and not self._adapter.drain.has_begun

    def execute(self, requests: Iterable[Any]) -> None:
        """See `Adapter.execute`."""
        self._adapter.execute(requests)

    def close(self) -> None:
        """Finish what came from other models; end the streams with an error, the engine, the socket and all threads.

        Triton calls this when its own requests have been answered.
        """
        self._adapter.drain.refuse(shutting_down())
        self._guests.finish()
        self._adapter.close()
        if self._local is not None:
            self._local.close()
        self._metrics.close()
        self._tracing.close()


def _local_server(
    name: InstanceName, engine: EngineHandle, adapter: Adapter, takeovers: Mapping[str, Takeover], logger: Any
) -> LocalServer:
    operations = Operations(name, engine, adapter).by_name
    return LocalServer(name.model, operations, os.getppid(), logger.log_error, takeovers)
