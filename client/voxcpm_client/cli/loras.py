"""`loras`: registering adapters on a server."""

from __future__ import annotations

from typing import Annotated

import typer

from voxcpm_client.cli.control import DEFAULT_MODEL, DEFAULT_URL, Model, Url
from voxcpm_client.client import Client
from voxcpm_client.types import Lora

loras = typer.Typer(no_args_is_help=True, help="List, register and unregister the server's adapters.")


@loras.command("list")
def list_loras(url: Url = DEFAULT_URL, model: Model = DEFAULT_MODEL) -> None:
    """One adapter a line."""
    with Client(url=url, model=model) as client:
        for lora in client.loras():
            print(_line(lora))


@loras.command()
def register(
    name: Annotated[str, typer.Argument(help="At most 64 characters.")],
    path: Annotated[str | None, typer.Option(help="Of its folder, below the server's lora_root.")] = None,
    uri: Annotated[str | None, typer.Option(help="Not --path: hf://owner/name[@revision], demo://giant.")] = None,
    sha256: Annotated[str | None, typer.Option(help="What the file with the weights must have.")] = None,
    url: Url = DEFAULT_URL,
    model: Model = DEFAULT_MODEL,
) -> None:
    """Register a LoRA adapter for say --lora."""
    with Client(url=url, model=model) as client:
        print(_line(client.register_lora(name, path, uri=uri, sha256=sha256)))


@loras.command()
def unregister(
    name: Annotated[str, typer.Argument(help="As it was registered.")],
    url: Url = DEFAULT_URL,
    model: Model = DEFAULT_MODEL,
) -> None:
    """Forget an adapter's name; streams that have begun with it go on."""
    with Client(url=url, model=model) as client:
        client.unregister_lora(name)
    print(f"{name}: unregistered")


def _line(lora: Lora) -> str:
    return f"{lora.name}: rank {lora.rank}, {lora.source}, {lora.created}"
