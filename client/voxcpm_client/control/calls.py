"""Calls with one answer, blocking or in asyncio. They are sent once: the caller knows whether twice is as good."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from tritonclient.grpc import service_pb2, service_pb2_grpc

from voxcpm_client.channels import Channels
from voxcpm_client.error_texts import error_from_answer

Send = Callable[[Any], Any]  # a stub to its call


@dataclass(frozen=True)
class UnaryCalls:
    """Where they go and what bounds them; the fields of `Client`. Errors are subclasses of VoxError."""

    channels: Channels
    url: str
    model: str
    timeout_s: float | None
    token: str | None = field(repr=False)

    def infer(self, request: service_pb2.ModelInferRequest) -> service_pb2.ModelInferResponse:
        return self._blocking(lambda stub: stub.ModelInfer(request, timeout=self.timeout_s))

    async def ainfer(self, request: service_pb2.ModelInferRequest) -> service_pb2.ModelInferResponse:
        return await self._awaited(lambda stub: stub.ModelInfer(request, timeout=self.timeout_s))

    def server_version(self) -> str:
        """Of tritonserver."""
        request = service_pb2.ServerMetadataRequest()
        version: str = self._blocking(lambda stub: stub.ServerMetadata(request, timeout=self.timeout_s)).version
        return version

    async def aserver_version(self) -> str:
        request = service_pb2.ServerMetadataRequest()
        answer = await self._awaited(lambda stub: stub.ServerMetadata(request, timeout=self.timeout_s))
        version: str = answer.version
        return version

    def _blocking(self, send: Send) -> Any:
        try:
            return send(service_pb2_grpc.GRPCInferenceServiceStub(self.channels.blocking(self.url)))
        except grpc.RpcError as error:
            raise error_from_answer(error.code().name, error.details() or "", self.url) from None

    async def _awaited(self, send: Send) -> Any:
        try:
            return await send(service_pb2_grpc.GRPCInferenceServiceStub(self.channels.of_this_loop(self.url)))
        except grpc.aio.AioRpcError as error:
            raise error_from_answer(error.code().name, error.details() or "", self.url) from None
