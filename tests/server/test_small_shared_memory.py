"""A server whose /dev/shm is too small: it says so when it starts, or to the request that does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mounts import run_with_tmpfs

pytestmark = pytest.mark.server

STARTS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tests.server_process import make_server
from voxcpm_client import Client, VoxError
from voxcpm_client.server import ServerError

def say(client, **options):
    try:
        return client.synthesize("Hello.", seed=1, inference_timesteps=2, **options).num_samples
    except VoxError as error:
        return str(error)

try:
    with make_server(Path(sys.argv[1]) / "tritonserver.log") as server, Client(url=server.grpc_url) as client:
        with ThreadPoolExecutor(3) as threads:
            beside = [threads.submit(say, client, max_length=40, ignore_stop=True, length_cap=False) for _ in range(2)]
            large = threads.submit(say, client, reference_audio=bytes(8_000_000))
        print(large.result())
        print(*(each.result() for each in beside), say(client, max_length=3))
except ServerError as error:
    print(error)
"""
SHM = Path("/dev/shm")


def test_without_room_for_its_models_it_does_not_start(tmp_path: Path) -> None:
    ended = run_with_tmpfs(SHM, "3m", STARTS, str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    assert "ended with exit status 1 before it was ready" in ended.stdout
    assert "'--shm-size'" in ended.stdout
    assert "No space left on device" in ended.stdout


def test_a_request_that_does_not_fit_is_refused_and_disturbs_nobody(tmp_path: Path) -> None:
    ended = run_with_tmpfs(SHM, "6m", STARTS, str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    refused, *others = ended.stdout.splitlines()
    assert "No space left on device" in refused
    assert others == [f"{40 * 7680} {40 * 7680} {3 * 7680}"]
