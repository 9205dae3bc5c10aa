"""Speech as one answer, from the engines of this server; everything is in `voxcpm_core.control`."""

import os

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """One instance, which answers from threads."""

    def initialize(self, args):
        try:
            from voxcpm_core.control.blocking import start_blocking
            from voxcpm_core.errors import StartupError
        except ModuleNotFoundError as error:
            message = f"{error}: install voxcpm-triton for the Python that Triton's Python backend runs"
            raise pb_utils.TritonModelException(message) from None
        try:
            self._model = start_blocking(args, pb_utils, os.environ)
        except StartupError as error:
            raise pb_utils.TritonModelException(str(error)) from None

    def execute(self, requests):
        self._model.execute(requests)

    def finalize(self):
        self._model.close()
