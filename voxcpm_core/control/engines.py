"""Links to the engine instances of one tritonserver, for requests that are passed on to them."""

from __future__ import annotations

import threading
from concurrent.futures import Future

from voxcpm_core.control.instances import Instance, least_loaded, reached
from voxcpm_core.doors.link import Link
from voxcpm_core.errors import not_ready
from voxcpm_core.threads import in_thread


class Engines:
    """One link to each instance that has been chosen, as long as that lives. `choose` is for one thread."""

    def __init__(self, server_pid: int) -> None:
        self._server_pid = server_pid
        self._lock = threading.Lock()
        self._links: dict[str, tuple[Link, Future[None]]] = {}  # by the name of the socket; with what serves it

    def choose(self, model: str | None) -> Link:
        """To the least loaded instance of `model`; None is the only one there is.

        Raises NOT_READY where none can be reached, and INVALID_PARAMETER for a wrong name and where there are several
        models and none is named.
        """
        with reached(self._server_pid, model=model) as instances:
            chosen = least_loaded(instances)
            with self._lock:
                link, _ = self._links.get(chosen.client.name, (None, None))
            return link or self._connect(chosen)

    @property
    def num_open(self) -> int:
        """Requests on all links that are not answered."""
        with self._lock:
            return sum(link.num_open for link, _ in self._links.values())

    def close(self) -> None:
        """End the links, and what still runs there."""
        with self._lock:
            links = list(self._links.values())
        for link, served in links:
            link.close()
            served.result()

    def _connect(self, instance: Instance) -> Link:
        name = instance.client.name
        try:
            instance.client.ask("guest")
            link = Link(instance.client.detach())
        except OSError:
            raise not_ready("the instance with the engine has just ended") from None

        def serve() -> None:
            link.serve()
            with self._lock:
                del self._links[name]

        with self._lock:
            self._links[name] = link, in_thread(serve, "voxcpm-engine")
        return link
