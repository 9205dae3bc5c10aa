"""One gRPC stream for one utterance, blocking or in asyncio. Leaving the iterator cancels the request.

The stubs are used directly: `InferenceServerClient.stop_stream(cancel_requests=True)` leaves its request thread waiting
for ever, one for each cancelled utterance, and its asyncio twin cannot ask for the empty final response.
"""

from __future__ import annotations

import asyncio
import queue
import re
import threading
from collections.abc import AsyncGenerator, Generator
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from voxcpm_client.cancellation import Cancellation
from voxcpm_client.channels import Channels
from voxcpm_client.error_texts import URL_HINT, error_from_status
from voxcpm_client.errors import GapTimeout, InvalidUrl


def check_url(url: str) -> None:
    """Raise InvalidUrl for a web address and for one without a port; gRPC's other forms pass."""
    is_web = re.match(r"(https?|grpcs?)://", url) is not None
    if is_web or not (url.startswith("unix:") or re.search(r":\d+$", url)):
        raise InvalidUrl(f"{url!r} cannot be reached: {URL_HINT}")


def read_responses(
    channels: Channels,
    url: str,
    request: service_pb2.ModelInferRequest,
    timeout_s: float | None,
    gap_timeout_s: float | None,
    cancellation: Cancellation,
) -> Generator[service_pb2.ModelStreamInferResponse, None, None]:
    """Send `request` and yield its responses. `gap_timeout_s` bounds the wait after the first one."""
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channels.blocking(url))
    call = stub.ModelStreamInfer(iter([request]), timeout=timeout_s)
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    pump = threading.Thread(target=_pump, args=(call, inbox), name="voxcpm-client", daemon=True)
    pump.start()
    gap_s = None
    num_chunks = 0
    try:
        with cancellation.covering(call):
            while True:
                response = inbox.get(timeout=gap_s)
                if response is None:
                    return
                if isinstance(response, grpc.RpcError):
                    raise error_from_status(response.code().name, response.details(), url, num_chunks)
                yield response
                gap_s = gap_timeout_s
                num_chunks += 1
    except queue.Empty:
        raise _gap(gap_timeout_s) from None
    finally:
        pump.join()


def _pump(call: Any, inbox: queue.SimpleQueue[Any]) -> None:
    """Move responses to `inbox`; then the error that ended the call, or None."""
    end = None
    try:
        for response in call:
            inbox.put(response)
    except grpc.RpcError as error:
        end = error
    inbox.put(end)


async def aread_responses(
    channels: Channels,
    url: str,
    request: service_pb2.ModelInferRequest,
    timeout_s: float | None,
    gap_timeout_s: float | None,
) -> AsyncGenerator[service_pb2.ModelStreamInferResponse, None]:
    """`read_responses` for asyncio."""
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channels.of_this_loop(url))
    call = stub.ModelStreamInfer(iter([request]), timeout=timeout_s)
    gap_s = None
    num_chunks = 0
    try:
        while True:
            response = await asyncio.wait_for(call.read(), gap_s)
            if response is grpc.aio.EOF:
                return
            yield response
            gap_s = gap_timeout_s
            num_chunks += 1
    except asyncio.TimeoutError:
        raise _gap(gap_timeout_s) from None
    except grpc.aio.AioRpcError as error:
        raise error_from_status(error.code().name, error.details() or "", url, num_chunks) from None
    finally:
        call.cancel()


def _gap(gap_timeout_s: float | None) -> GapTimeout:
    return GapTimeout(f"no chunk for {gap_timeout_s:g} s in a stream that had begun")
