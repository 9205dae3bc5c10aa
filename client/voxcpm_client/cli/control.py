"""`status`, `cancel`, `drain` and `encode`: what a server is asked for besides speech."""

from __future__ import annotations

import json
import time
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from voxcpm_client.cli.latents import write_latents
from voxcpm_client.client import Client

Url = Annotated[str, typer.Option(help="gRPC address of the server, host:port.")]
Model = Annotated[str, typer.Option(help="Name of the speech model.")]
DEFAULT_URL, DEFAULT_MODEL = "localhost:8001", "voxcpm"
DRAIN_POLL_S = 0.2


class Role(str, Enum):
    PROMPT = "prompt"
    REFERENCE = "reference"


def status(
    url: Url = DEFAULT_URL,
    model: Model = DEFAULT_MODEL,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
) -> None:
    """Show how full each engine is."""
    with Client(url=url, model=model) as client:
        answer = client.status()
    if as_json:
        print(json.dumps(answer, indent=1))
        return
    for each in answer["instances"]:
        state = "draining" if each["draining"] else "ready" if each["ready"] else "not ready"
        print(
            f"{each['instance']}: {state}, running {each['running']} of {each['max_running']}, "
            f"waiting {each['waiting']} of {each['max_waiting']}, pages {each['pages_used']} of {each['pages_total']}"
        )


def cancel(
    request_id: Annotated[str, typer.Argument(help="Id of the requests to end.")],
    url: Url = DEFAULT_URL,
    model: Model = DEFAULT_MODEL,
) -> None:
    """End all requests of that id, wherever they run or wait inside the model."""
    with Client(url=url, model=model) as client:
        print(f"cancelled: {client.cancel(request_id)}")


def drain(
    deadline_ms: Annotated[
        int | None, typer.Option(min=0, help="What is not finished by then ends with an error; default: no limit.")
    ] = None,
    url: Url = DEFAULT_URL,
    model: Model = DEFAULT_MODEL,
) -> None:
    """Have the engines take no more requests, and wait until those that they have are finished."""
    with Client(url=url, model=model) as client:
        num_open = client.drain(deadline_ms)
        print(f"open: {num_open}", flush=True)
        while num_open:
            time.sleep(DRAIN_POLL_S)
            if (left := client.status()["open"]) != num_open:
                num_open = left
                print(f"open: {num_open}", flush=True)


def encode(
    file: Annotated[Path, typer.Argument(help="A wav, flac, ogg or mp3 file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="latents.safetensors or latents.npy.")],
    role: Annotated[Role, typer.Option(help="What the latents are to be used as.")] = Role.PROMPT,
    url: Url = DEFAULT_URL,
    model: Model = DEFAULT_MODEL,
) -> None:
    """Turn an audio file into the latents that stand for it."""
    with Client(url=url, model=model) as client:
        latents = write_latents(output, role.value, lambda: client.encode(file, role.value))
    print(f"{output}: {latents.shape[0]} frames of {latents.shape[1]} values, as {role.value}")
