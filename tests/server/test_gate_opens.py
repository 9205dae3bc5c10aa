"""What becomes of those at the gate, and of those in Triton's queue behind it, when a model drains or is unloaded."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.conftest import QUEUE_SIZE, narrow_server
from tests.server.instance import Instance
from tests.server.lifecycle import family, post, wait_until
from tests.server.streams import GrpcStream
from tests.server.test_gate_queue import NUM_AHEAD, SETTLED_S, SHORT, SOON_S, Jam

pytestmark = pytest.mark.server
DEADLINE_MS = 1000


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    with narrow_server(tmp_path, "--model-control-mode=explicit", "--load-model=voxcpm") as instance:
        yield instance


@pytest.fixture
def jam(instance: Instance) -> Jam:
    return Jam(instance)


@pytest.fixture
def queued(jam: Jam) -> list[GrpcStream]:
    """Behind those at the gate."""
    streams = [GrpcStream(jam.instance.server, SHORT, f"behind-{index}") for index in range(QUEUE_SIZE - NUM_AHEAD)]
    time.sleep(SETTLED_S)
    jam.assert_holds()
    return streams


def test_a_drain_answers_all_of_them_at_once(jam: Jam, queued: list[GrpcStream]):
    start_s = time.monotonic()
    jam.instance.drain(DEADLINE_MS)
    for stream in [*jam.outside, *queued]:
        stream.finish()
        assert stream.num_chunks == 0
        assert "[DRAINING]" in stream.errors[0]
        assert "takes no more requests" in stream.errors[0]
    assert time.monotonic() - start_s < DEADLINE_MS / 1000, "those who have places are still there"
    for stream in jam.inside:
        stream.finish()
        assert f"not finished within the {DEADLINE_MS} ms" in stream.errors[0]
    assert time.monotonic() - start_s < DEADLINE_MS / 1000 + SOON_S
    jam.instance.wait_until_idle()


def test_an_unload_refuses_who_comes_and_lets_all_who_are_there_speak(jam: Jam, queued: list[GrpcStream]):
    """Triton tells the model of it when its last stream has ended, so nobody can be told before."""
    server = jam.instance.server
    assert post(server, "/v2/repository/models/voxcpm/unload") == 200
    late = GrpcStream(server, SHORT, "late")
    late.finish()
    assert "has no available versions" in late.errors[0]
    jam.assert_holds()
    jam.clear()
    for stream in queued:
        stream.finish()
        assert stream.errors == []
        assert stream.num_chunks > 0
    wait_until(lambda: not family(server), 10)
