"""One connection for all streams of a client."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from voxcpm_client import Client
from voxcpm_client.server import TritonServer

pytestmark = pytest.mark.server

FORK = """
import os, sys
from voxcpm_client import Client
client = Client(url=sys.argv[1], model="double")
assert client.synthesize("latents").audio == b"ab"
child = os.fork()
if child == 0:
    assert client.synthesize("latents").audio == b"ab"
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert client.synthesize("latents").audio == b"ab"
"""


@pytest.fixture
def client(double_server: TritonServer) -> Client:
    return Client(url=double_server.grpc_url, model="double")


def _connections(url: str) -> set[str]:
    """The TCP connections that this process has to `url`."""
    port = f"{int(url.rsplit(':', 1)[1]):04X}"
    inodes = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            inodes.add(os.readlink(descriptor))
        except FileNotFoundError:
            continue
    established = "01"
    rows = [row.split() for row in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    rows += [row.split() for row in Path("/proc/self/net/tcp6").read_text().splitlines()[1:]]
    return {f"socket:[{row[9]}]" for row in rows if row[2].endswith(f":{port}") and row[3] == established} & inodes


def test_streams_share_a_connection_until_it_is_closed(client: Client) -> None:
    before = _connections(client.url)  # of earlier tests, which may end meanwhile, or be what gRPC goes on using
    with client:
        streams = [client.stream("silence") for _ in range(3)]
        for chunks in streams:
            next(chunks)
        now = _connections(client.url)
        assert now
        assert len(now - before) <= 1
        for chunks in streams:
            chunks.close()
    assert client.synthesize("latents").audio == b"ab", "a closed client connects again"
    client.close()


def test_threads_share_a_client(client: Client) -> None:
    results: list[bytes] = []
    threads = [threading.Thread(target=lambda: results.append(client.synthesize("latents").audio)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [b"ab"] * 8


def test_event_loops_in_turn_share_a_client(client: Client) -> None:
    async def twice() -> list[bytes]:
        return [speech.audio for speech in await asyncio.gather(*(client.asynthesize("latents") for _ in range(2)))]

    for _ in range(3):
        assert asyncio.run(twice()) == [b"ab", b"ab"]

    async def closing() -> None:
        async with client:
            assert (await client.asynthesize("latents")).audio == b"ab"
        assert (await client.asynthesize("latents")).audio == b"ab"
        await client.aclose()

    asyncio.run(closing())


def test_a_forked_child_connects_by_itself(double_server: TritonServer) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK, double_server.grpc_url], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
