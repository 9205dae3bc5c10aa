"""VoxCPM text-to-speech as a decoupled Triton model; everything is in `voxcpm_core.serving`."""

import os

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """One instance: an engine on a device, or a door to the one that has it."""

    def initialize(self, args):
        # Triton also imports this file to complete the configuration, when torch is not wanted yet.
        try:
            from voxcpm_core.errors import StartupError
            from voxcpm_core.serving.role import start
        except ModuleNotFoundError as error:
            message = f"{error}: install voxcpm-triton for the Python that Triton's Python backend runs"
            raise pb_utils.TritonModelException(message) from None
        try:
            self._instance = start(args, pb_utils, os.environ)
        except StartupError as error:
            raise pb_utils.TritonModelException(str(error)) from None

    def is_ready(self):
        # Servers from about 26.03 on ask it for the model's ready URL; older ones never do.
        return self._instance.is_ready

    def execute(self, requests):
        self._instance.execute(requests)

    def finalize(self):
        self._instance.close()
