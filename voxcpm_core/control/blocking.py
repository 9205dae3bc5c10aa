"""`voxcpm_blocking`: speech as one answer, made by the engines of this server."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from voxcpm_core.config.settings import given_settings, model_parameters
from voxcpm_core.control.engines import Engines
from voxcpm_core.control.unary import RETRY_AFTER_MS
from voxcpm_core.doors.messages import Asked
from voxcpm_core.doors.stream import DoorStream
from voxcpm_core.errors import ConfigError, ErrorCode, RequestError
from voxcpm_core.serving.channel import UnaryChannel
from voxcpm_core.serving.parameters import request_id_of, utf8_or_none
from voxcpm_core.serving.poller import CancelPoller
from voxcpm_core.serving.responses import TritonResponses
from voxcpm_core.serving.sender_pool import SenderPool
from voxcpm_core.serving.tensors import InputTensors


@dataclass(frozen=True)
class BlockingConfig:
    """Settings of the model; each is also `VOXCPM_<NAME>` in the environment, which wins."""

    max_blocking: int = 256  # requests that are not answered; those who wait at an engine's gate have a thread there

    @classmethod
    def from_settings(cls, parameters: Mapping[str, str], environ: Mapping[str, str]) -> BlockingConfig:
        """Raises ConfigError for an unknown parameter and a bad value."""
        config = cls(**given_settings(cls, parameters, environ))
        if config.max_blocking < 1:
            raise ConfigError(f"max_blocking: expected at least 1, got {config.max_blocking}")
        return config


class Blocking:
    """What Triton calls. Requests reach an engine's gate in the order in which they come here."""

    def __init__(self, config: BlockingConfig, pb_utils: Any, server_pid: int) -> None:
        self._config = config
        self._logger = pb_utils.Logger
        self._responses = TritonResponses(pb_utils)
        self._engines = Engines(server_pid)
        self._pool = SenderPool()
        self._poller = CancelPoller()
        self._numbers = itertools.count()

    def execute(self, requests: Iterable[Any]) -> None:
        """Pass each request on, to be answered later; never raises."""
        for request in requests:
            given_id = utf8_or_none(request.request_id)
            request_id = request_id_of(given_id)
            channel = UnaryChannel(request.get_response_sender(), self._responses, request_id)
            with channel.answering(self._logger.log_error):
                self._pass_on(request, None if given_id is None else request_id, channel)

    def close(self) -> None:
        """End what still runs, and all threads. Triton calls it when all has been answered."""
        self._engines.close()
        self._pool.close()
        self._poller.close()

    def _pass_on(self, request: Any, request_id: str | None, channel: UnaryChannel) -> None:
        if self._engines.num_open >= self._config.max_blocking:
            inside = f"{self._config.max_blocking} requests are inside"
            raise RequestError(ErrorCode.OVERLOADED, f"{inside}, retry after {RETRY_AFTER_MS} ms")
        asked = Asked.of(next(self._numbers), request, request_id)
        inputs = [(name, array) for name, array in asked.inputs if name != "model"]
        asked = replace(asked, inputs=[*inputs, ("stream", np.array([False]))])
        model = InputTensors(request.inputs()).text("model", ErrorCode.INVALID_PARAMETER)
        link = self._engines.choose(model)
        stream = DoorStream(asked.number, channel, link, self._pool, self._logger.log_error)
        link.ask(asked, stream)
        self._poller.watch(stream)


def start_blocking(args: Mapping[str, str], pb_utils: Any, environ: Mapping[str, str]) -> Blocking:
    """`args` are those of Triton's `initialize`; the stub's parent is the tritonserver. Raises ConfigError."""
    config = BlockingConfig.from_settings(model_parameters(args["model_config"]), environ)
    return Blocking(config, pb_utils, os.getppid())
