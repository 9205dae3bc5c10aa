"""Loading of the Triton model: settings, placement, engine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from voxcpm_core.config.engine import EngineConfig
from voxcpm_core.config.settings import model_parameters
from voxcpm_core.doors.place import InstancePlace
from voxcpm_core.errors import ConfigError
from voxcpm_core.local.announced import announce
from voxcpm_core.local.status import InstanceName
from voxcpm_core.lora.listed import register_listed
from voxcpm_core.serving.instance import Instance
from voxcpm_core.tracing.tracing import start_tracing
from voxcpm_core.worker import WorkerHandle
from voxcpm_core.worker.placement import Placement

FIRST_RELEASE_WITH_NUMPY_2 = (24, 11)


def start(
    args: Mapping[str, str], place: InstancePlace, pb_utils: Any, environ: Mapping[str, str]
) -> Instance:
    """Load and warm up the engine of one instance, and register the adapters that are listed.

    `args` are those of Triton's `initialize`. Raises ConfigError or CheckpointError with what to change.
    """
    with suppress(OSError):  # no folder for sockets; the instance says so when it is there
        announce(args["model_name"], os.getppid())
    require_working_numpy(np.__version__, pb_utils, environ)
    config = read_settings(args["model_config"], environ)
    placement = Placement(args["model_instance_kind"], args["model_instance_device_id"])
    name = InstanceName(args["model_name"], args["model_version"], args["model_instance_name"])
    tracing = start_tracing(config.trace_url, name, pb_utils.Logger.log_warn)
    engine = WorkerHandle(config, placement)
    try:
        register_listed(engine)
    except BaseException:
        engine.close()
        raise
    return Instance(name, place, engine, pb_utils, tracing)


def read_settings(model_config: str, environ: Mapping[str, str]) -> EngineConfig:
    """Settings from config.pbtxt (Triton's JSON of it) and the environment; raises ConfigError."""
    config = EngineConfig.from_settings(model_parameters(model_config), environ)
    if not config.model:
        raise ConfigError(
            "VOXCPM_MODEL is not set: name a checkpoint folder, a Hugging Face id such as openbmb/VoxCPM1.5, or demo"
        )
    return config


def require_working_numpy(version: str, pb_utils: Any, environ: Mapping[str, str]) -> None:
    """Raise ConfigError where the stub would crash at the first text input.

    Stubs before Triton 24.11 read arrays of numpy 2 wrongly. NVIDIA's images name their release; elsewhere the
    stub's age shows in the signature of InferenceResponse, which took `parameters` in 25.02.
    """
    if int(version.split(".")[0]) < 2:
        return
    release = environ.get("NVIDIA_TRITON_SERVER_VERSION", "")
    if release:
        year, month = release.split(".")[:2]
        is_old = (int(year), int(month)) < FIRST_RELEASE_WITH_NUMPY_2
    else:
        is_old = "parameters" not in (pb_utils.InferenceResponse.__init__.__doc__ or "")
    if is_old:
        raise ConfigError(f"numpy {version} crashes the Python backend of this Triton release: install 'numpy<2'")
