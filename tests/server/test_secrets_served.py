"""What callers say stays theirs: no error and no line of the server's log holds it, or shows where code lies."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from tests.noise_voice import NOISE
from tests.server.wire import GrpcCall, generate, generate_stream, infer_input
from tests.server_process import ADMIN_TOKEN
from voxcpm_client.server import TritonServer

pytestmark = pytest.mark.server
SECRET = "Xyzzyplugh"
AUDIO = SECRET.encode() * 400
BASE64 = base64.b64encode(AUDIO).decode()
ROOT = str(Path(__file__).parents[2])
LEAKS = re.compile(
    rf"{SECRET}|{BASE64[:24]}|{ADMIN_TOKEN}|Traceback|File \"|/[\w./-]+\.py|site-packages|{ROOT}|{NOISE}", re.I
)

WRONG: list[dict[str, Any]] = [
    {"target_text": SECRET * 5000},
    {"target_text": SECRET.encode() + b"\xff"},
    {"target_text": SECRET, "max_length": 0},
    {"target_text": "Hi.", "prompt_text": SECRET},
    {"target_text": SECRET, "prompt_audio": AUDIO, "prompt_text": SECRET},
    {"target_text": SECRET, "reference_audio": AUDIO},
    {"target_text": SECRET, "reference_latents": np.full((4, 3), np.nan, np.float32)},
    {"target_text": SECRET, "deadline_ms": 1, "ignore_stop": True},
    {"target_text": SECRET, "voice": "nobody"},
    {"target_text": SECRET, "lora": "nobody"},
]
WRONG_JSON: list[dict[str, Any]] = [
    {"target_text": SECRET, "encoding": "base64", "prompt_text": SECRET, "prompt_audio": BASE64},
    {"target_text": SECRET, "encoding": "base64", "reference_audio": BASE64[:-1]},
    {"target_text": SECRET, "cfg_value": "1"},
]
WRONG_CONTROL: list[dict[str, Any]] = [
    {"op": "drain", "token": SECRET}, {"op": "queue", "token": SECRET},
    {"op": "add_voice", "token": ADMIN_TOKEN, "name": "n", "prompt_text": SECRET, "prompt_audio_base64": BASE64},
    {"op": "register_lora", "token": ADMIN_TOKEN, "name": "n", "path": "../../etc"},
    {"op": "register_lora", "token": ADMIN_TOKEN, "name": "n", "path": "/etc"},
]  # fmt: skip


def once(client: grpcclient.InferenceServerClient, model: str, **inputs: Any) -> str:
    """The error of a model that answers once."""
    with pytest.raises(InferenceServerException) as refused:
        client.infer(model, [infer_input(name, value) for name, value in inputs.items()])
    return str(refused.value.message())


def errors_of(server: TritonServer) -> Iterator[str]:
    for inputs in WRONG:
        for model in ("voxcpm", "voxcpm_mp3"):
            yield from GrpcCall(server, inputs, model=model).finish().errors
    for body in WRONG_JSON:
        yield generate(server, {**body, "stream": False})[1]["error"]
        yield generate_stream(server, body)[1][0]["error"]
    with grpcclient.InferenceServerClient(server.grpc_url) as client:
        for inputs in WRONG:
            yield once(client, "voxcpm_blocking", **inputs)
        for request in WRONG_CONTROL:
            yield once(client, "voxcpm_control", request=json.dumps(request))
        yield once(client, "voxcpm_control", request=f'{{"op": "{SECRET}')
        yield once(client, "voxcpm_encode", audio=AUDIO)


def test_no_error_and_no_log_line_holds_a_text_a_token_or_a_place(triton_server: TritonServer):
    assert triton_server.log_file is not None
    before = len(triton_server.log_file.read_text())
    errors = list(errors_of(triton_server))
    assert len(errors) == 3 * len(WRONG) + 2 * len(WRONG_JSON) + len(WRONG_CONTROL) + 2
    assert GrpcCall(triton_server, {"target_text": SECRET, "max_length": 2}).finish().errors == []
    assert [error for error in errors if LEAKS.search(error)] == []
    log = triton_server.log_file.read_text()[before:]
    assert [line for line in log.splitlines() if LEAKS.search(line)] == []
    assert "DEADLINE_EXCEEDED" in log, "the log is that of these requests"
