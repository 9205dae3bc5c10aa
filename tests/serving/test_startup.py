"""Settings and checks before an engine is loaded, and what is registered then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import pytest

from tests.serving.fake_triton import FakeBackend
from voxcpm_core.config import EngineConfig
from voxcpm_core.doors.place import InstancePlace
from voxcpm_core.errors import ConfigError
from voxcpm_core.serving import startup
from voxcpm_core.serving.role import start
from voxcpm_core.serving.startup import read_settings, require_working_numpy
from voxcpm_core.worker.placement import VISIBLE, Placement, place


class NewResponse:
    def __init__(self) -> None:
        """__init__(self, output_tensors, error, parameters='')"""


class NewBackend(FakeBackend):
    InferenceResponse = NewResponse


def model_config(**parameters: str) -> str:
    return json.dumps({"parameters": {name: {"string_value": value} for name, value in parameters.items()}})


def test_settings_come_from_the_file_and_the_environment_wins():
    config = read_settings(model_config(model="demo", max_running="3"), {"VOXCPM_MAX_RUNNING": "5"})
    assert (config.model, config.max_running) == ("demo", 5)


def test_the_backends_own_parameters_are_not_ours():
    settings = model_config(model="demo", EXECUTION_ENV_PATH="/x", FORCE_CPU_ONLY_INPUT_TENSORS="no")
    assert read_settings(settings, {}).model == "demo"


def test_without_a_model_loading_fails_with_what_to_do():
    with pytest.raises(ConfigError, match="VOXCPM_MODEL is not set"):
        read_settings("{}", {})


def test_an_unknown_parameter_is_named():
    with pytest.raises(ConfigError, match="max_runing"):
        read_settings(model_config(model="demo", max_runing="3"), {})


@pytest.mark.parametrize(
    ("version", "backend", "release"),
    [("1.26.4", FakeBackend(), ""), ("2.1.0", NewBackend(), ""), ("2.1.0", FakeBackend(), "24.11"),
     ("2.1.0", FakeBackend(), "25.05")],
)
def test_numpy_that_works(version: str, backend: FakeBackend, release: str):
    require_working_numpy(version, backend, {"NVIDIA_TRITON_SERVER_VERSION": release})


@pytest.mark.parametrize(
    ("backend", "release"), [(FakeBackend(), ""), (NewBackend(), "24.10"), (FakeBackend(), "23.12")]
)
def test_numpy_2_on_an_old_stub_is_refused(backend: FakeBackend, release: str):
    with pytest.raises(ConfigError, match="numpy<2"):
        require_working_numpy("2.1.0", backend, {"NVIDIA_TRITON_SERVER_VERSION": release})


class Engine:
    """In the place of a worker and its handle."""

    started: ClassVar[list[Engine]] = []

    def __init__(self, config: EngineConfig, placement: Placement) -> None:
        self.config, self.placement, self.is_closed = config, placement, False
        Engine.started.append(self)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def _engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "started", [])
    monkeypatch.setattr(startup, "WorkerHandle", Engine)


def instance_args(config: str, name: str = "voxcpm_0", kind: str = "CPU", device_id: int = 0) -> dict[str, str]:
    """What Triton gives to `initialize`."""
    return {
        "model_config": config, "model_name": "voxcpm", "model_version": "1", "model_instance_kind": kind,
        "model_instance_device_id": str(device_id), "model_instance_name": name,
    }


@pytest.mark.usefixtures("_engines")
def test_a_listed_adapter_that_cannot_be_had_ends_the_start_and_the_engine(tmp_path: Path):
    args = instance_args(model_config(model="demo", lora_root=str(tmp_path)))
    with pytest.raises(ConfigError, match="the adapter 'anna' cannot be registered: path: there is no folder 'gone'"):
        startup.start(args, InstancePlace.of(args), FakeBackend(), {"VOXCPM_LORAS": "anna=gone"})
    (engine,) = Engine.started
    assert engine.is_closed


@pytest.mark.usefixtures("_engines")
def test_each_gpu_that_a_group_lists_has_an_engine_which_sees_it_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(startup, "Instance", lambda name, place, engine, *_: engine)
    monkeypatch.setattr("voxcpm_core.doors.door.Door", lambda place, pb_utils: place)
    group = {"name": "voxcpm_0", "count": 2, "kind": "KIND_GPU", "gpus": [1, 3]}
    config = json.dumps({**json.loads(model_config(model="demo")), "instance_group": [group]})
    doors = []
    for gpu in group["gpus"]:
        start(instance_args(config, "voxcpm_0_0", "GPU", gpu), FakeBackend(), {})
        doors.append(start(instance_args(config, "voxcpm_0_1", "GPU", gpu), FakeBackend(), {}))
    devices = [place(engine.config.device, engine.placement, {VISIBLE: "9,8,7,GPU-a"}) for engine in Engine.started]
    assert [device.environ[VISIBLE] for device in devices] == ["8", "GPU-a"]
    assert [device.placement.device_id for device in devices] == ["0", "0"]
    assert [door.device for door in doors] == ["GPU 1", "GPU 3"]
