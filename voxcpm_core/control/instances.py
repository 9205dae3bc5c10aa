"""The engine instances of one tritonserver, as a request names them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from voxcpm_core.errors import ErrorCode, RequestError, invalid_parameter, not_ready, shown
from voxcpm_core.local.announced import is_wrong_name
from voxcpm_core.local.client import LocalClient, connect_instances

QUICK_S = 5.0  # for what an instance answers from its stub
SLOW_S = 300.0  # for decoding and encoding, behind that of others
IDENTITY = ("model", "version", "instance")


@dataclass(frozen=True)
class Instance:
    """One that answers, and its status a moment ago."""

    client: LocalClient
    status: Mapping[str, Any]

    @property
    def identity(self) -> dict[str, Any]:
        return {name: self.status[name] for name in IDENTITY}

    def ask(self, op: str, timeout_s: float, **fields: Any) -> dict[str, Any]:
        """The result of an operation; raises RequestError with its code, INTERNAL when the instance ends meanwhile."""
        self.client.wait_up_to(timeout_s)
        try:
            return self.client.ask(op, **fields)
        except OSError:
            raise RequestError(ErrorCode.INTERNAL, "the instance with the engine ended or is silent") from None


@contextmanager
def reached(server_pid: int, **named: str | None) -> Iterator[list[Instance]]:
    """All instances that answer and have the `named` model, version and instance; None is any.

    Raises NOT_READY when there are none, and INVALID_PARAMETER for a model that the server never began to load.
    """
    with ExitStack() as stack:
        instances = []
        for client in connect_instances(named.get("model"), server_pid, QUICK_S):
            stack.enter_context(client)
            try:
                status = client.ask("status")
            except OSError:  # it ends, or its process is stopped
                continue
            if all(value is None or status[name] == value for name, value in named.items()):
                instances.append(Instance(client, status))
        if not instances:
            if (model := named.get("model")) is not None and is_wrong_name(model, server_pid):
                raise invalid_parameter(f"model: no engine is called {shown(model)}")
            wanted = ", ".join(f"{name} {shown(value)}" for name, value in named.items() if value is not None)
            raise not_ready(f"no engine can be reached{' with ' if wanted else ''}{wanted}")
        yield instances


def least_loaded(instances: Sequence[Instance]) -> Instance:
    """The one to do work that any of them can. Raises INVALID_PARAMETER when they are of several models."""
    models = sorted({each.status["model"] for each in instances})
    if len(models) > 1:
        raise invalid_parameter(f"model: several are loaded ({', '.join(models)}); name one")
    return min(instances, key=lambda each: (not each.status["ready"], each.status["running"] + each.status["waiting"]))
