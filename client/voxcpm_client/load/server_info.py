"""What a server says of itself."""

from __future__ import annotations

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from voxcpm_client.channels import Channels
from voxcpm_client.error_texts import error_from_status

_TIMEOUT_S = 10.0


def ask_version(url: str) -> str:
    """Its name and version. Raises ServerUnavailable, or another VoxError."""
    channels = Channels()
    try:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channels.blocking(url))
        answer = stub.ServerMetadata(service_pb2.ServerMetadataRequest(), timeout=_TIMEOUT_S)
        return f"{answer.name} {answer.version}"
    except grpc.RpcError as error:
        raise error_from_status(error.code().name, error.details() or "", url, 0) from None
    finally:
        channels.close()
