"""Tests whose server was lost to a known fault of Triton 2.51: they run once more, and a warning tells of it.

Its gRPC front end can die of a cancel that comes in the moment of a response (docs/operating.md), once in some
thousand, of which the tests make hundreds. Another death of a server, or a test that loses it again, fails.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from _pytest.runner import runtestprotocol

from voxcpm_client.server import TritonServer

LAST_WORDS = 4000  # characters of the log of a server that has ended
START_S = 300.0
FRAME = re.compile(r"^ *\d+# .*$", re.MULTILINE)
_shared: list[TritonServer] = []
_lost: list[str] = []  # last words of servers that a test has yet to be told of


@contextmanager
def lasting(server: TritonServer) -> Iterator[TritonServer]:
    """A server that many tests share: should it have ended by itself, why those after that failed."""
    with server:
        _shared.append(server)
        try:
            yield server
        finally:
            _shared.remove(server)
        code = server.exit_code()
        if code is not None and not is_lost(server):
            raise AssertionError(f"tritonserver ended by itself, {code}:\n{_last_words(server)}")


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Of a test, as pytest does it, and once again where that is right."""
    where = {"nodeid": item.nodeid, "location": item.location}
    item.ihook.pytest_runtest_logstart(**where)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    _start_lost_again()
    if _lost and any(report.failed for report in reports):
        item.warn(pytest.PytestWarning(f"run again, since tritonserver died in a cancel:\n{_lost[-1]}"))
        item._initrequest()  # type: ignore[attr-defined]  # fixtures, as at first
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    _lost.clear()
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(**where)
    return True


def note_loss(server: TritonServer) -> None:
    """Before a server is stopped: should its test fail, this may be why."""
    if is_lost(server):
        _lost.append(_last_words(server))


def _start_lost_again() -> None:
    for server in _shared:
        if is_lost(server):
            note_loss(server)
            server.stop(grace_s=0)
            server.start()
            server.wait_until_ready(START_S)


def is_lost(server: TritonServer) -> bool:
    """Whether the server died of that fault: with a stack that is in its own program alone."""
    if server.exit_code() != -signal.SIGSEGV:
        return False
    frames = FRAME.findall(_last_words(server).rpartition("Signal (11)")[2])
    own = [re.search(r"/tritonserver$|/lib(c|stdc\+\+)\.so", frame.rstrip()) for frame in frames]
    return bool(own) and all(own)


def _last_words(server: TritonServer) -> str:
    assert server.log_file is not None
    return server.log_file.read_text()[-LAST_WORDS:]
