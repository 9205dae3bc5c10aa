"""Samples to MP3, the last step of voxcpm_mp3; everything is in `voxcpm_core.chain`."""

import os

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """The one instance: chunks keep their order."""

    def initialize(self, args):
        try:
            from voxcpm_core.chain.mp3 import start_mp3_encoder
            from voxcpm_core.errors import StartupError
        except ModuleNotFoundError as error:
            message = f"{error}: install voxcpm-triton for the Python that Triton's Python backend runs"
            raise pb_utils.TritonModelException(message) from None
        try:
            self._model = start_mp3_encoder(args, pb_utils, os.environ)
        except StartupError as error:
            raise pb_utils.TritonModelException(str(error)) from None

    def execute(self, requests):
        self._model.execute(requests)

    def finalize(self):
        self._model.close()
