"""`demo`: a real server on the demo checkpoint, one sentence streamed into a wav and an mp3 file."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from voxcpm_client.cli.output import require_folder, write
from voxcpm_client.cli.progress import shown, summary
from voxcpm_client.cli.serve import DEMO_NOTE
from voxcpm_client.client import Client
from voxcpm_client.server import TritonServer, find_repository

_SENTENCE = "The train leaves at seven in the morning."
_SEED = 1


def demo(
    folder: Annotated[Path, typer.Option(help="Where to write demo.wav and demo.mp3.")] = Path(),
    device: Annotated[str, typer.Option(help="cuda:0, cpu, ...; default: CUDA where there is one.")] = "",
) -> None:
    """Start a server on the demo checkpoint, stream a sentence into demo.wav and demo.mp3, and stop it."""
    require_folder(folder)
    settings = {"VOXCPM_MODEL": "demo", **({"VOXCPM_DEVICE": device} if device else {})}
    with tempfile.TemporaryDirectory(prefix="voxcpm-demo-") as scratch:
        server = TritonServer(find_repository(), settings=settings, log_file=Path(scratch) / "tritonserver.log")
        print(f"Starting tritonserver on {DEMO_NOTE}.", flush=True)
        with server:
            print(f"Ready: gRPC {server.grpc_url}, HTTP {server.http_url}.", flush=True)
            client = Client(url=server.grpc_url)
            files = [_say(client, audio_format, folder / f"demo.{audio_format}") for audio_format in ("wav", "mp3")]
    print(f"Server stopped. Listen to {files[0]} and {files[1]}.")


def _say(client: Client, audio_format: str, file: Path) -> Path:
    stream = client.stream(_SENTENCE, format=audio_format, seed=_SEED)
    with closing(stream), closing(shown(stream, file.name)) as progress:
        speech = write(progress, str(file), audio_format)
    print(f"{file.name}: {summary(speech)}", flush=True)
    return file.resolve()
