"""Whatever is sent, there is an answer, the server lives on, and a good request works right after."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
import tritonclient.grpc as grpcclient
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

from tests.fuzz import odd_grpc, odd_json
from tests.server.wire import call
from voxcpm_client.server import TritonServer

CASES = {"gRPC": 100, "JSON": 100}
SOAK_CASES = {"gRPC": 1000, "JSON": 1000}
Case = TypeVar("Case")


def run_cases(cases: SearchStrategy[Case], count: int, check: Callable[[Case], None]) -> None:
    """The same `count` cases every time; a failing one is shown as it was drawn."""
    num_run = 0

    @settings(
        max_examples=count, derandomize=True, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases)
    def run(case: Case) -> None:
        nonlocal num_run
        num_run += 1
        check(case)

    run()
    assert num_run >= count


def check_text(answer: str) -> None:
    assert "[INTERNAL]" not in answer
    assert "Traceback" not in answer
    assert "site-packages" not in answer


def check_alive(server: TritonServer) -> None:
    answer = call(server, "Good.", max_length=1)
    assert answer.errors == []
    assert answer.num_finals == 1


def fuzz_grpc(server: TritonServer, count: int) -> None:
    def check(request: odd_grpc.service_pb2.ModelInferRequest) -> None:
        for error in odd_grpc.send(server, request):
            check_text(error)
        check_alive(server)

    run_cases(odd_grpc.requests(input_types(server)), count, check)


def fuzz_json(server: TritonServer, count: int) -> None:
    def check(case: tuple[str, bytes]) -> None:
        check_text(odd_json.post(server, *case))
        check_alive(server)

    run_cases(odd_json.bodies(input_types(server)), count, check)


def input_types(server: TritonServer) -> dict[str, str]:
    with grpcclient.InferenceServerClient(server.grpc_url) as client:
        return {each.name: each.datatype for each in client.get_model_metadata("voxcpm").inputs}


@pytest.mark.server
def test_odd_grpc_requests(triton_server: TritonServer):
    fuzz_grpc(triton_server, CASES["gRPC"])


@pytest.mark.server
def test_odd_json(triton_server: TritonServer):
    fuzz_json(triton_server, CASES["JSON"])


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_many_odd_grpc_requests(triton_server: TritonServer):
    fuzz_grpc(triton_server, SOAK_CASES["gRPC"])


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_much_odd_json(triton_server: TritonServer):
    fuzz_json(triton_server, SOAK_CASES["JSON"])
