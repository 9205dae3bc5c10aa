"""The local socket of real servers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.server.instance import Instance
from tests.server.streams import LONG, GrpcStream
from voxcpm_client.server import TritonServer
from voxcpm_core.local.client import connect_instances

pytestmark = pytest.mark.server


@pytest.mark.soak
def test_two_servers_do_not_meet_and_each_answers_while_it_is_full(
    start_server: Callable[..., TritonServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    busy = start_server(VOXCPM_MAX_RUNNING="2", VOXCPM_MAX_WAITING="1")
    quiet = start_server(VOXCPM_MAX_RUNNING="3", VOXCPM_MAX_WAITING="4")
    with Instance(busy) as one, Instance(quiet) as other:
        streams = [GrpcStream(busy, LONG) for _ in range(5)]
        one.wait_for(running=2, waiting=1)
        status = one.status()
        assert (status["model"], status["version"], status["utilization_pct"]) == ("voxcpm", "1", 100.0)
        assert (status["max_running"], status["max_waiting"]) == (2, 1)
        assert (status["ready"], status["draining"], status["num_restarts"]) == (True, False, 0)
        assert 0 < status["pages_used"] <= status["pages_total"]
        assert Path(f"/proc/{status['worker_pid']}").exists()
        start_s = time.monotonic()
        for _ in range(100):
            one.status()
        assert time.monotonic() - start_s < 5.0, "it answers from the stub, not from the busy engine"
        idle = other.status()
        assert (idle["running"], idle["waiting"], idle["pages_used"], idle["max_running"]) == (0, 0, 0, 3)
        assert idle["worker_pid"] != status["worker_pid"]
        for stream in streams:
            stream.leave()
        one.wait_until_idle()
    ended = quiet.pid
    quiet.stop()
    assert list((tmp_path / f"voxcpm-{os.geteuid()}").glob(f"*-{ended}-*/*")) == []
    with pytest.raises(ProcessLookupError):
        connect_instances("voxcpm", ended)
