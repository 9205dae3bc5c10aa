"""Latents to samples, a step of voxcpm_mp3; everything is in `voxcpm_core.chain`."""

import os

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """The one instance: chunks keep their order."""

    def initialize(self, args):
        try:
            from voxcpm_core.chain.audiovae import start_audiovae
            from voxcpm_core.errors import StartupError
        except ModuleNotFoundError as error:
            message = f"{error}: install voxcpm-triton for the Python that Triton's Python backend runs"
            raise pb_utils.TritonModelException(message) from None
        try:
            self._model = start_audiovae(args, pb_utils, os.environ)
        except StartupError as error:
            raise pb_utils.TritonModelException(str(error)) from None

    def execute(self, requests):
        self._model.execute(requests)

    def finalize(self):
        self._model.close()
