"""Settings and checks before an engine is loaded, and what is registered then."""

import json
from pathlib import Path

import pytest

from tests.serving.fake_triton import FakeBackend
from voxcpm_core.doors.place import InstancePlace
from voxcpm_core.errors import ConfigError
from voxcpm_core.serving import startup
from voxcpm_core.serving.startup import read_settings, require_working_numpy


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


def test_a_listed_adapter_that_cannot_be_had_ends_the_start_and_the_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    class Engine:
        is_closed = False

        def __init__(self, config, placement) -> None:
            self.config = config

        def close(self) -> None:
            Engine.is_closed = True

    monkeypatch.setattr(startup, "WorkerHandle", Engine)
    args = {
        "model_config": model_config(model="demo", lora_root=str(tmp_path)), "model_name": "voxcpm",
        "model_version": "1", "model_instance_kind": "CPU", "model_instance_device_id": "0",
        "model_instance_name": "voxcpm_0_0",
    }
    place = InstancePlace("voxcpm", "1", "voxcpm_0", "CPU 0", 0, 1)
    with pytest.raises(ConfigError, match="the adapter 'anna' cannot be registered: path: there is no folder 'gone'"):
        startup.start(args, place, FakeBackend(), {"VOXCPM_LORAS": "anna=gone"})
    assert Engine.is_closed
