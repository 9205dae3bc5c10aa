"""Loading, unloading and dying: what stays, what ends, and what is left behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.server.instance import Instance
from tests.server.lifecycle import SHM_PREFIX, family, is_gone, post, wait_until
from tests.server.streams import LONG, GrpcStream, same_sound
from tests.server.wire import GrpcCall, call, generate
from tests.server_process import make_server, require_installation
from tests.soak.processes import shared_memory_kib
from voxcpm_client import Client
from voxcpm_client.cli.exit_status import exit_status
from voxcpm_client.errors import InvalidParameter, NotReady, UnknownModel, VoxError
from voxcpm_client.server import TritonServer, find_repository

pytestmark = pytest.mark.server
EXPLICIT = ("--model-control-mode=explicit", "--load-model=voxcpm")
NUM_PATCHES = 30
NUM_INSTANCES = 4


def one_long_stream(server: TritonServer) -> GrpcStream:
    stream = GrpcStream(server, {**LONG, "max_length": NUM_PATCHES})
    assert stream.next_chunk()
    return stream


def assert_complete(stream: GrpcStream) -> None:
    stream.finish()
    assert stream.errors == []
    assert len(stream.audio) == NUM_PATCHES * 2 * 7680


def test_unload_lets_a_stream_end(start_server: Callable[..., TritonServer]):
    of_others_kib = shared_memory_kib(SHM_PREFIX)
    server = start_server(arguments=EXPLICIT)
    stream = one_long_stream(server)
    assert post(server, "/v2/repository/models/voxcpm/unload") == 200
    refused = call(server, max_length=1)
    assert refused.errors
    assert_complete(stream)
    wait_until(lambda: not family(server), 10)
    assert shared_memory_kib(SHM_PREFIX) == of_others_kib


def test_while_a_model_is_unloaded_it_is_not_ready_and_a_wrong_name_is_unknown(
    start_server: Callable[..., TritonServer]
):
    loaded = ("--load-model=voxcpm", "--load-model=voxcpm_blocking", "--load-model=voxcpm_control")
    server = start_server(repository=find_repository(), arguments=("--model-control-mode=explicit", *loaded))

    def answered() -> str:
        """By `voxcpm_blocking`: an error, or nothing."""
        said = {"target_text": "Hello.", "max_length": 1, "encoding": "base64", "model": "voxcpm"}
        return str(generate(server, said, "voxcpm_blocking")[1].get("error", ""))

    def status_of(refused: type[VoxError], model: str) -> int:
        with pytest.raises(refused) as caught:
            Client(url=server.grpc_url, model=model, retries=0).synthesize("Hello.")
        assert type(caught.value) is refused
        return exit_status(caught.value)

    with Client(url=server.grpc_url) as client:
        assert answered() == ""
        assert post(server, "/v2/repository/models/voxcpm/unload") == 200
        assert status_of(NotReady, "voxcpm") == os.EX_TEMPFAIL
        assert status_of(UnknownModel, "voxcmp") == os.EX_CONFIG
        wait_until(lambda: "[NOT_READY]" in answered(), 30)  # Triton tells the instance with the engine late
        wait_until(lambda: "worker" not in {each.role for each in family(server)}, 30)
        wait_until(lambda: "no engine can be reached with model 'voxcpm', retry after" in answered(), 10)
        with pytest.raises(NotReady, match="no engine can be reached"):
            client.status()
        with pytest.raises(InvalidParameter, match="no engine is called 'voxcmp'"):
            client.control("status", model="voxcmp")
        assert post(server, "/v2/repository/models/voxcpm/load") == 200
        assert answered() == ""


def test_sigterm_lets_a_stream_end(start_server: Callable[..., TritonServer]):
    server = start_server(arguments=("--exit-timeout-secs=60",))
    stream = one_long_stream(server)
    os.kill(server.pid, signal.SIGTERM)
    assert_complete(stream)
    with contextlib.suppress(ConnectionError):  # HTTP is closed at once
        assert post(server, "/v2/health/ready") != 200
    wait_until(lambda: server.exit_code() is not None, 65)
    assert server.exit_code() == 0


def test_a_killed_server_takes_its_family_along(tmp_path: Path):
    require_installation(dict(os.environ))
    server = make_server(tmp_path / "log")
    try:
        server.start()
        server.wait_until_ready(timeout_s=120)
        left = family(server)
        assert {"stub", "worker", "decoder"} == {each.role for each in left}
        os.kill(server.pid, signal.SIGKILL)
        os.waitpid(server.pid, 0)  # as its parent does; a stub takes one that is not reaped for alive
        wait_until(lambda: all(is_gone(each.pid) for each in left), 10)
    finally:
        with contextlib.suppress(ProcessLookupError):
            server.stop(grace_s=0)


def test_killed_stubs(start_server: Callable[..., TritonServer]):
    """Triton 2.51 does not start them again, and says that it is ready, or aborts; what a stub was doing or had started
    ends."""
    server = start_server()
    left = family(server)
    (worker,) = [each for each in left if each.role == "worker"]
    engine_pid = int(Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()[1])
    door_pids = [each.pid for each in left if each.role == "stub" and each.pid != engine_pid]
    streams = [one_long_stream(server) for _ in door_pids]  # some of them will never end
    with Instance(server) as instance:
        for pid in door_pids:
            os.kill(pid, signal.SIGKILL)
        instance.wait_until_idle()
        assert instance.status()["num_restarts"] == 0
    assert all(stream.num_chunks for stream in streams)
    os.kill(engine_pid, signal.SIGKILL)
    wait_until(lambda: all(is_gone(each.pid) for each in left if each.role != "stub"), 10)
    try:
        answers = [generate(server, {"target_text": "Hello", "max_length": 1})[1] for _ in range(NUM_INSTANCES)]
    except ConnectionError:  # it aborts at some kills
        wait_until(lambda: server.exit_code() is not None, 10)
    else:
        assert all("is not healthy" in answer["error"] for answer in answers)
        assert server.is_ready()


def test_another_name_and_two_engines(start_server: Callable[..., TritonServer], tmp_path: Path):
    shutil.copytree(find_repository() / "voxcpm", tmp_path / "models" / "speech")
    config = tmp_path / "models" / "speech" / "config.pbtxt"
    text = config.read_text()
    groups = "instance_group [ { count: 2 kind: KIND_CPU }, { count: 1 kind: KIND_CPU } ]"
    config.write_text(text.replace("instance_group [ { count: 4 } ]", groups))
    assert config.read_text() != text
    server = start_server(repository=tmp_path / "models")
    assert [each.role for each in family(server)].count("worker") == 2
    inputs = {"target_text": "One of four.", "max_length": 4, "min_length": 4, "seed": 3}
    answers = [each.finish() for each in [GrpcCall(server, inputs, model="speech") for _ in range(4)]]
    assert [answer.errors for answer in answers] == [[]] * 4
    assert all(same_sound(answer.audio, answers[0].audio) for answer in answers)
