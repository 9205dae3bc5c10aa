"""Finding a tritonserver on this machine and running it on the model repository."""

from voxcpm_client.server.errors import ServerError
from voxcpm_client.server.installation import Installation, find_installation
from voxcpm_client.server.process import TritonServer
from voxcpm_client.server.repository import find_repository

__all__ = ["Installation", "ServerError", "TritonServer", "find_installation", "find_repository"]
