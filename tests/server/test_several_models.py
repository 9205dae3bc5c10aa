"""Models loaded by hand, by the commands of docs/operating.md as they stand there."""

from __future__ import annotations

import http.client
import json
import re
from pathlib import Path

import pytest
import soundfile

from tests.served_command import SERVE, run_as_user, served
from tests.server_process import with_one_instance
from tests.test_operating import section
from voxcpm_client import Client
from voxcpm_client.errors import Draining

pytestmark = pytest.mark.server
LOADED = {"voxcpm", "audiovae", "mp3_encoder", "voxcpm_mp3", "voxcpm_control"}
UNTIL_UNLOADED = "until curl "


def post(http_url: str, path: str) -> bytes:
    connection = http.client.HTTPConnection(http_url, timeout=120)
    try:
        connection.request("POST", f"/v2/repository/{path}", b"{}")
        response = connection.getresponse()
        data = response.read()
        assert response.status == 200, data
        return data
    finally:
        connection.close()


def ready_models(http_url: str) -> set[str]:
    return {each["name"] for each in json.loads(post(http_url, "index")) if each.get("state") == "READY"}


def test_the_documented_commands(tmp_path: Path):
    with_one_instance(tmp_path).rename(tmp_path / "model_repository")  # fewer processes than four for each model
    prepare, serve, use = re.findall(
        r"^```bash\n(.*?)^```", section("Several models, and loading by hand"), re.M | re.S
    )
    run_as_user(prepare, tmp_path)
    (command,) = (line for line in serve.splitlines() if line.startswith(SERVE))
    with served(command, tmp_path) as (grpc_url, http_url):
        assert ready_models(http_url) == LOADED
        here = use.replace("localhost:8000", http_url)
        for name in ("say", "drain"):
            here = here.replace(f"voxcpm-triton {name}", f"voxcpm-triton {name} --url {grpc_url}")
        run_as_user(here, tmp_path)
        assert ready_models(http_url) == LOADED
        client = Client(url=grpc_url, retries=0)
        demo_rate = client.synthesize("Hello.", max_length=2).sample_rate
        assert soundfile.info(tmp_path / "second.wav").samplerate != demo_rate, "that of the other checkpoint"
        post(http_url, "models/second/load")
        again = Client(url=grpc_url, model="second", retries=0).synthesize("Hello.", max_length=2)
        assert again.num_samples > 0, "nothing is left of the drain"
        (wait,) = (line for line in here.splitlines() if line.startswith(UNTIL_UNLOADED))
        wait = wait.replace('"second"', '"voxcpm"')
        assert_only_a_new_engine_ends_a_drain(grpc_url, http_url, tmp_path, wait)


def assert_only_a_new_engine_ends_a_drain(grpc_url: str, http_url: str, folder: Path, wait: str) -> None:
    client = Client(url=grpc_url, retries=0)
    post(http_url, "models/voxcpm/load")  # once for what Python has written beside the model
    run_as_user(f"voxcpm-triton drain --url {grpc_url}", folder)
    post(http_url, "models/voxcpm/load")
    with pytest.raises(Draining):
        client.synthesize("Hello.", max_length=2)
    post(http_url, "models/voxcpm/unload")
    run_as_user(wait, folder)
    assert ready_models(http_url) == LOADED - {"voxcpm", "voxcpm_mp3"} | {"second"}
    post(http_url, "models/voxcpm/load")
    assert ready_models(http_url) == LOADED | {"second"}
    assert Client(url=grpc_url, model="voxcpm_mp3", retries=0).synthesize("Hello.", max_length=2).num_samples > 0
