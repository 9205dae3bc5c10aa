"""`serve`: Triton in the foreground with the model repository of this package."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Annotated

import typer

from voxcpm_client.server import TritonServer, find_repository

DEMO_NOTE = "the demo checkpoint: its weights are random, so it makes noise, not speech"


def serve(
    context: typer.Context,
    model: Annotated[str, typer.Option(help="Checkpoint folder, Hugging Face id, or 'demo'.")] = "",
    device: Annotated[str, typer.Option(help="cuda:0, cpu, ...; default: CUDA where there is one.")] = "",
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16; default: the checkpoint's, float32 on a CPU.")] = "",
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for every interface.")] = "127.0.0.1",
    http_port: Annotated[int, typer.Option(help="0 takes a free port.")] = 8000,
    grpc_port: Annotated[int, typer.Option(help="0 takes a free port.")] = 8001,
    metrics_port: Annotated[int, typer.Option(help="0 takes a free port.")] = 8002,
) -> None:
    """Serve a model until Ctrl-C. Arguments after -- go to tritonserver as they are."""
    settings = {
        name: value
        for name, value in {"VOXCPM_MODEL": model, "VOXCPM_DEVICE": device, "VOXCPM_DTYPE": dtype}.items()
        if value
    }
    if not model and not os.environ.get("VOXCPM_MODEL"):
        settings["VOXCPM_MODEL"] = "demo"
        _note(f"no --model and no VOXCPM_MODEL: taking {DEMO_NOTE}")
    server = TritonServer(
        find_repository(),
        settings=settings,
        host=host,
        http_port=http_port,
        grpc_port=grpc_port,
        metrics_port=metrics_port,
        arguments=context.args,
    )
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, _interrupt)
    code = 0
    try:
        server.start()
        server.wait_until_ready()
        _note(f"ready: gRPC {server.grpc_url}, HTTP {server.http_url}, metrics {server.metrics_url}; Ctrl-C stops")
        code = server.wait()
        _note(f"tritonserver ended with exit status {code}")
    except KeyboardInterrupt:
        _note("stopping")
    finally:
        server.stop()
    if code != 0:
        raise typer.Exit(1)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _note(text: str) -> None:
    print(f"voxcpm-triton: {text}", file=sys.stderr, flush=True)
