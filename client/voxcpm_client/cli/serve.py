"""`serve`: Triton in the foreground with a model repository, this package's own unless told otherwise."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from voxcpm_client.control.token import TOKEN_VARIABLE, left_for_the_user, new_token
from voxcpm_client.server import TritonServer, find_repository

DEMO_NOTE = "the demo checkpoint: a small English voice of 16 kHz that this package ships"
_INTERRUPTED = 130  # the exit status of a shell's command that Ctrl-C ended
_PORT = typer.Option(min=0, max=65535, help="0 takes a free port.")


def serve(
    context: typer.Context,
    model: Annotated[str, typer.Option(help="Checkpoint folder, Hugging Face id, or 'demo'.")] = "",
    device: Annotated[str, typer.Option(help="cuda:0, cpu, ...; default: CUDA where there is one.")] = "",
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16; default: the checkpoint's, float32 on a CPU.")] = "",
    voices: Annotated[
        Path | None, typer.Option(file_okay=False, help="Folder of registered voices; made with the first one.")
    ] = None,
    lora_root: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="Folder of adapters that may be registered.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for every interface.")] = "127.0.0.1",
    http_port: Annotated[int, _PORT] = 8000,
    grpc_port: Annotated[int, _PORT] = 8001,
    metrics_port: Annotated[int, _PORT] = 8002,
    model_repository: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="A folder of models to serve instead of this package's: yours, with its voxcpm folder copied into it.",
        ),
    ] = None,
) -> None:
    """Serve a model until Ctrl-C. Arguments after -- go to tritonserver as they are."""
    given = {"VOXCPM_MODEL": model, "VOXCPM_DEVICE": device, "VOXCPM_DTYPE": dtype}
    given["VOXCPM_VOICES"] = str(voices.absolute()) if voices is not None else ""
    given["VOXCPM_LORA_ROOT"] = str(lora_root.absolute()) if lora_root is not None else ""
    settings = {name: value for name, value in given.items() if value}
    if model_repository is None and not model and not os.environ.get("VOXCPM_MODEL"):
        settings["VOXCPM_MODEL"] = "demo"
        _note(f"no --model and no VOXCPM_MODEL: taking {DEMO_NOTE}")
    token = settings.setdefault(TOKEN_VARIABLE, os.environ.get(TOKEN_VARIABLE) or new_token())
    server = TritonServer(
        model_repository or find_repository(),
        settings=settings,
        host=host,
        http_port=http_port,
        grpc_port=grpc_port,
        metrics_port=metrics_port,
        arguments=context.args,
    )
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, _interrupt)
    try:
        with ExitStack() as leaving:
            code = _run(server, lambda: _leave_token(leaving, token, server.grpc_url))
    finally:
        _stop(server)
    if code != 0:
        raise typer.Exit(1)


def _run(server: TritonServer, when_ready: Callable[[], None]) -> int:
    """Until the server ends by itself, whose exit status this is, or is told to end by a signal."""
    try:
        server.start()
        server.wait_until_ready()
        when_ready()
        _note(f"ready: gRPC {server.grpc_url}, HTTP {server.http_url}, metrics {server.metrics_url}, "
              f"tritonserver {server.pid}; Ctrl-C stops")
        code = server.wait()
    except KeyboardInterrupt:
        limit_s = server.exit_timeout_s
        _note(f"stopping: running streams may go on for at most {limit_s} s; Ctrl-C again stops at once")
        return 0
    _note(f"tritonserver ended with exit status {code}")
    return code


def _leave_token(leaving: ExitStack, token: str, grpc_url: str) -> None:
    """Not before the port is this server's: where another has it, that one's token must stay."""
    try:
        leaving.enter_context(left_for_the_user(token, grpc_url))
    except OSError as error:
        _note(f"the admin token is left nowhere ({error}): set {TOKEN_VARIABLE} to change voices")


def _stop(server: TritonServer) -> None:
    try:
        server.stop()
    except KeyboardInterrupt:
        _note("stopped at once")
        raise typer.Exit(_INTERRUPTED) from None


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _note(text: str) -> None:
    print(f"voxcpm-triton: {text}", file=sys.stderr, flush=True)
