"""The worker process: one engine, told what to do through a socket, gone when its parent is."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import torch

from voxcpm_core.checkpoint.opened import open_checkpoint
from voxcpm_core.children.parent import PARENT_GONE
from voxcpm_core.engine import EngineLoop, build_warm_core
from voxcpm_core.errors import CheckpointError, RequestError, StartupError
from voxcpm_core.faults import place_of
from voxcpm_core.types import EngineEvent
from voxcpm_core.wire import Wire
from voxcpm_core.worker.arena import RingArena
from voxcpm_core.worker.device import choose_device
from voxcpm_core.worker.messages import (
    Answer,
    Cancel,
    CheckLora,
    Encode,
    NotStarted,
    Ready,
    Start,
    Submit,
    receive,
    send,
)
from voxcpm_core.worker.outbox import packed
from voxcpm_core.worker.ring import Ring

log = logging.getLogger(__name__)

ENGINE_FAULT = 70  # exit status


class Worker:
    """The engine and its connection. Commands are read in the main thread; the engine's thread sends."""

    def __init__(self, wire: Wire, start: Start) -> None:
        self._wire = wire
        self._send_lock = threading.Lock()
        choice = choose_device(
            start.config.device, start.placement.kind, start.placement.device_id, torch.cuda.is_available
        )

        def make_arena(device: torch.device) -> RingArena:
            self._arena = RingArena(Ring(start.geometry, start.ring_fd), device.type == "cuda", self._announce)
            return self._arena

        checkpoint = open_checkpoint(start.config.model)
        if checkpoint.model != start.model:
            raise CheckpointError(f"{checkpoint.folder}: now holds another model; load it again")
        self._core = build_warm_core(start.config, checkpoint, choice.device, make_arena)
        self._loop = EngineLoop(self._core, self._deliver)
        self.send(Ready(self._core.stats(), choice.warning, _gpu(torch.device(choice.device))))

    def serve(self) -> None:
        """Obey until the parent goes or closes the connection; raises EOFError then."""
        while True:
            command = receive(self._wire)
            if isinstance(command, Submit):
                self._loop.add(command.stream_id, command.request)
            elif isinstance(command, Cancel):
                self._loop.cancel(command.stream_id)
            elif isinstance(command, Encode):
                self._answer(command.encode_id, self._loop.encode(command.waveform, command.pad), self._tell_stats)
            elif isinstance(command, CheckLora):
                self._answer(command.check_id, self._loop.check_lora(command.path))

    def send(self, message: object) -> None:
        with self._send_lock:
            send(self._wire, message)

    def _announce(self) -> None:
        with self._send_lock, contextlib.suppress(OSError):  # of a parent that has gone the next message tells
            self._wire.announce()

    def _answer(self, question_id: int, answered: Future[Any], first: Callable[[], None] = lambda: None) -> None:
        """`first`: what is done before an answer is sent, in the thread that has found it."""

        def answer(future: Future[Any]) -> None:
            error = future.exception()
            if isinstance(error, RequestError):
                self.send(Answer(question_id, None, (error.code, str(error))))
            else:
                first()
                self.send(Answer(question_id, future.result(), None))

        answered.add_done_callback(answer)

    def _tell_stats(self) -> None:
        """In the engine's thread: whoever asks for them behind an answer finds what it took in them."""
        self.send(packed((), self._arena, self._core.stats()))

    def _deliver(self, events: list[EngineEvent]) -> None:
        try:
            self.send(packed(events, self._arena, self._core.stats()))
        except OSError:
            os._exit(PARENT_GONE)
        if not self._loop.is_running:  # it failed, and everybody has been told
            os._exit(ENGINE_FAULT)


def _gpu(device: torch.device) -> str:
    """As Triton's own metrics and NVML name it, or "cpu"."""
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}" if device.type == "cuda" else "cpu"


def main() -> None:
    """Run as `python -m voxcpm_core.worker FD`, where FD is the connection to the parent."""
    logging.basicConfig(format="voxcpm worker %(process)d: %(message)s", level=logging.INFO)
    # Whoever stops a whole process group or service stops the parent, which ends its streams first.
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.SIG_IGN)
    wire = Wire(socket.socket(fileno=int(sys.argv[1])))
    with contextlib.suppress(EOFError, OSError):
        worker = _start(wire)
        if worker is not None:
            worker.serve()
    os._exit(PARENT_GONE)  # at once: no step in flight matters to anybody


def _start(wire: Wire) -> Worker | None:
    """None when the engine cannot start, which the parent then knows."""
    start: Start = receive(wire)
    try:
        return Worker(wire, start)
    except StartupError as error:
        send(wire, NotStarted(type(error).__name__, str(error)))
    except Exception as error:
        log.error("the engine cannot start: %s", place_of(error), exc_info=error)
        message = f"the engine cannot start: {type(error).__name__}; the log names the place"
        send(wire, NotStarted(StartupError.__name__, message))
    return None
