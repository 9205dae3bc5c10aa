"""A repository that was copied, its model renamed and in two versions: loaded, used and unloaded again and again."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import tritonclient.grpc as grpcclient

from tests.server.lifecycle import SHM_PREFIX, family, post, wait_until
from tests.server.streams import LONG, same_sound
from tests.server.wire import GrpcCall
from tests.soak.processes import Holding, holdings, shared_memory_kib
from voxcpm_client.server import TritonServer, find_repository

pytestmark = pytest.mark.server
VERSIONS = ("1", "2")
ARGUMENTS = ("--model-control-mode=explicit", "--load-model=speech", "--disable-auto-complete-config")
SAID = {"target_text": "Hello.", "max_length": 3, "seed": 3, "inference_timesteps": 2}
GROWN_KIB = 4096  # of tritonserver in a round, once it has done each thing


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One instance of each version: an engine, and nothing that only passes requests on."""
    models = tmp_path / "elsewhere" / "models"
    shutil.copytree(find_repository() / "voxcpm", models / "speech")
    shutil.copytree(models / "speech" / "1", models / "speech" / "2")
    config = models / "speech" / "config.pbtxt"
    shipped = config.read_text()
    config.write_text(shipped.replace("count: 4", "count: 1") + "version_policy { all {} }\n")
    assert "count: 1" in config.read_text()
    return models


def speak(server: TritonServer) -> None:
    """Both versions, whose engines have nothing in common; one error and one who leaves."""
    calls = [GrpcCall(server, SAID, model="speech", version=version) for version in VERSIONS]
    first, second = [each.finish() for each in calls]
    assert first.errors == second.errors == []
    assert same_sound(first.audio, second.audio)
    assert GrpcCall(server, {"target_text": " "}, model="speech", version="1").finish().code == "INVALID_TEXT"
    leaving = GrpcCall(server, LONG, model="speech", version="2")
    assert leaving.next_event()
    leaving.cancel()


def held(server: TritonServer, first: Holding | None) -> Holding:
    """By tritonserver alone, when nothing is loaded and gRPC has done with what ended: no more than at first."""
    wait_until(lambda: not family(server), 20)
    (alone,) = holdings(server.pid)
    end_s = time.monotonic() + 10
    while first is not None and time.monotonic() < end_s:
        if alone.descriptors <= first.descriptors and alone.threads <= first.threads:
            break
        time.sleep(0.1)
        (alone,) = holdings(server.pid)
    return alone


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.soak)])
def test_loads_and_unloads_leave_nothing(start_server: Callable[..., TritonServer], repository: Path, rounds: int):
    of_others_kib = shared_memory_kib(SHM_PREFIX)
    server = start_server(repository=repository, arguments=ARGUMENTS)
    with grpcclient.InferenceServerClient(server.grpc_url) as client:
        assert sorted(client.get_model_metadata("speech").versions) == list(VERSIONS)
    left: list[Holding] = []
    for index in range(rounds):
        if index:
            assert post(server, "/v2/repository/models/speech/load") == 200
        assert [each.role for each in family(server)].count("worker") == len(VERSIONS)
        speak(server)
        assert post(server, "/v2/repository/models/speech/unload") == 200
        left.append(held(server, left[0] if left else None))
        assert shared_memory_kib(SHM_PREFIX) == of_others_kib
    assert max(each.descriptors for each in left) <= left[0].descriptors
    assert max(each.threads for each in left) <= left[0].threads
    assert left[-1].rss_kib <= left[len(left) // 2].rss_kib + GROWN_KIB * len(left) // 2
