"""Causes in logs of tritonserver."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from voxcpm_client.server import log

OLD = (  # 2.51 writes line breaks as two characters
    "E1128 02:05:41.987694 23399 model_lifecycle.cc:642] \"failed to load 'voxcpm' version 1: Internal: "
    "TritonModelException: dtype: expected 'float32' or 'bfloat16', got 'float99'\\n\\nAt:\\n  "
    "/models/voxcpm/1/model.py(22): initialize\\n\"\n"
)
NEW = "E1128 02:05 1 model.cc:1] failed to load 'other' version 3: Internal: OSError: no weights\n\nAt:\n  model.py\n"
PORT = "E1128 02:02 1 main.cc:1] \"failed to start GRPC service: Unavailable - Socket '127.0.0.1:1' already in use \"\n"
STUB = "I1128 1 pb_stub.cc:366] \"Failed to initialize Python stub: TritonModelException: dtype: expected\"\n"
SERVES = 'I1128 1 grpc_server.cc:2558] "Started GRPCInferenceService at 127.0.0.1:8001"\n'
WARNING = "W1128 1 metrics.cc:798] DCGM unable to start\n"
NOISE = "I1128 02:02:11.636931 17645 server.cc:631] \n+---+\n| a |\n+---+\nerror: creating server: Internal\n"


def test_causes() -> None:
    assert log.causes(NOISE) == {}
    assert log.causes(NOISE + OLD + NEW + PORT) == {
        "model voxcpm": "dtype: expected 'float32' or 'bfloat16', got 'float99'",
        "model other": "Internal: OSError: no weights",
        "GRPC service": "Unavailable - Socket '127.0.0.1:1' already in use",
    }


def test_failure_ends_with_the_cause_or_the_log(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text(NOISE + OLD + NOISE)
    assert log.failure(file) == "; model voxcpm: dtype: expected 'float32' or 'bfloat16', got 'float99'"
    file.write_text(NOISE)
    assert log.failure(file).endswith("error: creating server: Internal")
    assert "| a |" not in log.failure(file)


def test_relay_leaves_a_cause_to_who_asks_for_it_and_drops_what_follows(capfd: pytest.CaptureFixture[str]) -> None:
    relay = log.LogRelay(io.BytesIO((NOISE + STUB + OLD + NOISE + WARNING + PORT).encode()))
    relay.start()
    assert list(relay.causes()) == ["model voxcpm", "GRPC service"]
    assert capfd.readouterr().err == NOISE + WARNING


@pytest.mark.parametrize("following", ["", SERVES + WARNING])
def test_relay_passes_on_what_nobody_is_told(capfd: pytest.CaptureFixture[str], following: str) -> None:
    """A server that ends for another reason, and one that goes on without its model."""
    relay = log.LogRelay(io.BytesIO((NOISE + STUB + (OLD if following else "") + following).encode()))
    relay.start()
    relay.join()
    assert capfd.readouterr().err == NOISE + STUB + (OLD + WARNING if following else "")


def test_what_several_models_have_in_common_is_said_once() -> None:
    found = {"model a": "no", "GRPC service": "busy", "model b": "no"}
    assert log.told(found) == "; model a, model b: no; GRPC service: busy"


def test_relay_passes_everything_on_once_the_server_is_ready(capfd: pytest.CaptureFixture[str]) -> None:
    relay = log.LogRelay(io.BytesIO((OLD + NOISE).encode()))
    relay.started()
    relay.start()
    assert relay.causes() == {}
    assert capfd.readouterr().err == OLD + NOISE


def test_a_folder_that_bears_another_name_than_its_model_is_named():
    line = "E1128 manager.cc:1] Poll failed for model directory 'tts': unexpected directory name 'tts'\n"
    assert log.causes(line) == {"model folder tts": "unexpected directory name 'tts'"}
