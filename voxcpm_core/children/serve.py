"""The child's side: answers one message at a time until its parent has gone."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from voxcpm_core.children.answers import pack_refusal, pack_result
from voxcpm_core.children.parent import end_with_parent
from voxcpm_core.errors import RequestError


def serve(answer: Callable[[bytes], bytes], memory_bytes: int) -> None:
    """Run a child whose last argument is the descriptor of its socket. `answer` may raise RequestError.

    Address space beyond `memory_bytes` more than the start took is refused to it. Anything else that `answer` raises
    ends the child.
    """
    num_pages = int(Path("/proc/self/statm").read_text().split()[0])
    _set_limit(resource.RLIMIT_AS, num_pages * resource.getpagesize() + memory_bytes)
    _set_limit(resource.RLIMIT_CORE, 0)  # a crash must not leave a caller's data in a file
    connection = Connection(int(sys.argv[-1]))
    end_with_parent(connection.fileno())
    connection.send_bytes(b"")  # ready
    while True:
        try:
            message = connection.recv_bytes()
        except EOFError:
            return
        try:
            packed = pack_result(answer(message))
        except RequestError as error:
            packed = pack_refusal(error)
        connection.send_bytes(packed)


def _set_limit(kind: int, limit: int) -> None:
    _, hard = resource.getrlimit(kind)
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(kind, (limit, limit))
