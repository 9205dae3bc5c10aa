"""The part of a load that one process makes, in one event loop over one connection.

Measured with 64 streams: one connection or 64 make no difference to a loop, and threads cost a quarter more than it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from voxcpm_client.channels import Channels
from voxcpm_client.load.asking import Script, ask
from voxcpm_client.load.outcome import Outcome
from voxcpm_client.load.stop import Stop

_CONNECT_TIMEOUT_S = 2.0
PAUSE_AFTER_ERROR_S = 0.25  # of a client; else a server that refuses would be asked without a break


@dataclass(frozen=True)
class ClosedShare:
    """Clients that send the requests of `indices` in order, each by the client that is free first."""

    script: Script
    clients: range
    indices: range
    begin_s: float  # by time.perf_counter
    begin_apart_s: float  # from one client's beginning to that of the client with the next number
    duration_s: float | None  # none is sent later


@dataclass(frozen=True)
class OpenShare:
    """Requests of `indices`, each sent at its time whatever became of those before."""

    script: Script
    indices: range
    due_s: tuple[float, ...]  # by time.perf_counter


Share = ClosedShare | OpenShare


@dataclass(frozen=True)
class ShareResult:
    outcomes: tuple[Outcome, ...]
    num_unfinished: int  # cancelled when the load was stopped
    cpu_s: float  # of the process meanwhile


def run_share(share: Share, stop: Stop) -> ShareResult:
    """Make the share's requests. Raises what is no failure of a request, as a fault of this program."""
    requests = _Requests(share.script)
    cpu_s = time.process_time()
    stop.run(_make(share, requests))
    num_unfinished = requests.num_sent - len(requests.outcomes)
    return ShareResult(tuple(requests.outcomes), num_unfinished, time.process_time() - cpu_s)


class _Requests:
    def __init__(self, script: Script) -> None:
        self._script = script
        self._channels = Channels()
        self.outcomes: list[Outcome] = []
        self.num_sent = 0

    async def connect(self) -> None:
        """Open the connection, so that no request's time holds that; where there is no server, the requests tell."""
        channel = self._channels.of_this_loop(self._script.url)
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(channel.channel_ready(), _CONNECT_TIMEOUT_S)

    async def ask(self, index: int, client: int, due_s: float | None = None) -> Outcome:
        self.num_sent += 1
        outcome = await ask(self._channels, self._script, index, client, due_s)
        self.outcomes.append(outcome)
        return outcome

    async def close(self) -> None:
        await self._channels.aclose()


async def _make(share: Share, requests: _Requests) -> None:
    tasks: list[asyncio.Future[Any]] = []
    try:
        await requests.connect()
        if isinstance(share, ClosedShare):
            _begin_clients(share, requests, tasks)
        else:
            await _arrive(share, requests, tasks)
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await requests.close()


def _begin_clients(share: ClosedShare, requests: _Requests, tasks: list[asyncio.Future[Any]]) -> None:
    indices = iter(share.indices)
    tasks += [asyncio.ensure_future(_be_client(number, indices, share, requests)) for number in share.clients]


async def _be_client(number: int, indices: Iterator[int], share: ClosedShare, requests: _Requests) -> None:
    end_s = float("inf") if share.duration_s is None else share.begin_s + share.duration_s
    await _sleep_until(share.begin_s + number * share.begin_apart_s)
    while time.perf_counter() < end_s and (index := next(indices, None)) is not None:
        outcome = await requests.ask(index, number)
        if outcome.error is not None:
            await asyncio.sleep(PAUSE_AFTER_ERROR_S)


async def _arrive(share: OpenShare, requests: _Requests, tasks: list[asyncio.Future[Any]]) -> None:
    for index, due_s in zip(share.indices, share.due_s, strict=True):
        await _sleep_until(due_s)
        tasks.append(asyncio.ensure_future(requests.ask(index, index, due_s)))


def _sleep_until(at_s: float) -> Coroutine[Any, Any, None]:
    return asyncio.sleep(max(0.0, at_s - time.perf_counter()))
