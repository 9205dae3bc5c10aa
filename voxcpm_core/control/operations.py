"""The operations of `voxcpm_control`."""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from voxcpm_core.control.instances import QUICK_S, SLOW_S, Instance, least_loaded, reached
from voxcpm_core.control.request import ControlRequest, parse
from voxcpm_core.control.settings import ControlConfig
from voxcpm_core.errors import ErrorCode, RequestError

Answer = dict[str, Any]
_SUMS = ("open", "running", "waiting", "max_running", "max_waiting", "pages_used", "pages_total")
_VOICE_PARTS = tuple(f"{role}_{kind}_base64" for role in ("prompt", "reference") for kind in ("audio", "latents"))


class Control:
    """Thread-safe; blocks for as long as the instances take."""

    def __init__(self, config: ControlConfig, server_pid: int, environ: Mapping[str, str] = os.environ) -> None:
        self._config = config
        self._server_pid = server_pid
        self._server_release = environ.get("NVIDIA_TRITON_SERVER_VERSION")

    def answer(self, data: bytes) -> Answer:
        """The answer to a request as it came; raises RequestError."""
        request = parse(data, {op: frozenset(each.fields) for op, each in OPERATIONS.items()})
        operation = OPERATIONS[request.op]
        if operation.needs_token or (request.op == "cancel" and not self._config.open_cancel):
            self._check_token(request.token)
        with reached(self._server_pid, **request.named) as instances:
            answer = operation.run(request, instances)
        if request.op == "info":
            answer["server_release"] = self._server_release
        return answer

    def _check_token(self, token: str | None) -> None:
        wanted = self._config.admin_token
        if not wanted:
            raise RequestError(ErrorCode.FORBIDDEN, "this operation is off: VOXCPM_ADMIN_TOKEN is not set")
        given = (token or "").encode("utf-8", "surrogatepass")
        if not hmac.compare_digest(given, wanted.encode("utf-8", "surrogateescape")):
            message = "this operation needs the server's admin token, as its field token"
            raise RequestError(ErrorCode.FORBIDDEN, f"{message}; the client takes it from VOXCPM_ADMIN_TOKEN")


def _info(request: ControlRequest, instances: Sequence[Instance]) -> Answer:
    answers = _all(request, instances)
    first = answers[0]
    common = {name: first[name] for name in first if all(each[name] == first[name] for each in answers)}
    return {**common, "instances": answers}


def _status(request: ControlRequest, instances: Sequence[Instance]) -> Answer:
    answers = [dict(each.status) for each in instances]
    totals: Answer = {name: sum(each[name] for each in answers) for name in _SUMS}
    totals["utilization_pct"] = round(100 * totals["running"] / totals["max_running"], 1)
    totals["ready"] = all(each["ready"] for each in answers)
    totals["draining"] = any(each["draining"] for each in answers)
    return {**totals, "instances": answers}


def _queue(request: ControlRequest, instances: Sequence[Instance]) -> Answer:
    answers = _all(request, instances)
    waiting = [request_id for each in answers for request_id in each["waiting"]]
    return {"waiting": waiting, "depth": len(waiting), "instances": answers}


def _cancel(request: ControlRequest, instances: Sequence[Instance]) -> Answer:
    answers = _all(request, instances)
    return {"cancelled": sum(each["cancelled"] for each in answers), "instances": answers}


def _drain(request: ControlRequest, instances: Sequence[Instance]) -> Answer:
    answers = _all(request, instances)
    return {"open": sum(each["open"] for each in answers), "instances": answers}


def _by_one(timeout_s: float) -> Callable[[ControlRequest, Sequence[Instance]], Answer]:
    """An operation on the folders of voices and adapters, which the instances of a model share."""

    def run(request: ControlRequest, instances: Sequence[Instance]) -> Answer:
        chosen = least_loaded(instances)
        answer = chosen.ask(request.op, timeout_s, **request.fields)
        own = {name: value for name, value in answer.items() if name not in chosen.identity}
        return {**own, "instances": [chosen.identity]}

    return run


def _all(request: ControlRequest, instances: Sequence[Instance]) -> list[Answer]:
    return [each.ask(request.op, QUICK_S, **request.fields) for each in instances]


@dataclass(frozen=True)
class _Operation:
    run: Callable[[ControlRequest, Sequence[Instance]], Answer]
    fields: tuple[str, ...] = ()
    needs_token: bool = False


OPERATIONS = {
    "info": _Operation(_info),
    "status": _Operation(_status),
    "queue": _Operation(_queue, needs_token=True),
    "cancel": _Operation(_cancel, ("request_id",)),
    "voices": _Operation(_by_one(QUICK_S)),
    "add_voice": _Operation(_by_one(SLOW_S), ("name", "prompt_text", *_VOICE_PARTS), needs_token=True),
    "remove_voice": _Operation(_by_one(QUICK_S), ("name",), needs_token=True),
    "loras": _Operation(_by_one(QUICK_S)),
    "register_lora": _Operation(_by_one(SLOW_S), ("name", "path", "uri", "sha256"), needs_token=True),
    "unregister_lora": _Operation(_by_one(QUICK_S), ("name",), needs_token=True),
    "drain": _Operation(_drain, ("deadline_ms",), needs_token=True),
}
