"""An engine that cannot be started again: what the model says, over every protocol, until it is loaded again."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.noise_voice import NOISE_FOLDER
from tests.server.instance import Instance
from tests.server.lifecycle import family, post, wait_until
from tests.server.wire import call, generate, generate_stream
from voxcpm_client.server import TritonServer
from voxcpm_core.worker.restarts import MAX_CRASHES

pytestmark = [pytest.mark.server, pytest.mark.soak]
GAVE_UP_S = 150.0
SAYS_SO = f"the engine crashed {MAX_CRASHES} times in a row and stays down until the model is loaded again, retry after"


@pytest.mark.timeout(600)
def test_five_crashes_in_a_row(start_server: Callable[..., TritonServer], tmp_path: Path):
    folder = tmp_path / "model"
    shutil.copytree(NOISE_FOLDER, folder)
    explicit = ("--model-control-mode=explicit", "--load-model=voxcpm")
    server = start_server(VOXCPM_MODEL=str(folder), arguments=explicit)
    with Instance(server) as instance:
        assert call(server, max_length=1).errors == []
        for file in folder.glob("*.safetensors"):
            file.rename(file.with_suffix(".away"))
        os.kill(instance.status()["worker_pid"], signal.SIGKILL)
        wait_until(lambda: SAYS_SO in "".join(call(server, max_length=1).errors), GAVE_UP_S)
        status = instance.status()
        assert (status["ready"], status["worker_pid"], status["num_restarts"]) == (False, 0, MAX_CRASHES - 1)
        refusals = [call(server).errors[0], generate(server, {"target_text": "x", "stream": False})[1]["error"]]
        refusals.append(generate_stream(server, {"target_text": "x"})[1][0]["error"])
        assert all("[NOT_READY] request " in refusal and SAYS_SO in refusal for refusal in refusals)
    for file in folder.glob("*.away"):
        file.rename(file.with_suffix(".safetensors"))
    assert post(server, "/v2/repository/models/voxcpm/unload") == 200
    wait_until(lambda: not family(server), 20)
    assert post(server, "/v2/repository/models/voxcpm/load") == 200
    assert call(server, max_length=1).errors == []
