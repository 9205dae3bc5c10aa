"""`voices`: registering voices on a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from voxcpm_client.cli.control import DEFAULT_MODEL, DEFAULT_URL, Model, Url
from voxcpm_client.cli.latents import given_latents
from voxcpm_client.client import Client
from voxcpm_client.types import Voice

voices = typer.Typer(no_args_is_help=True, help="List, add and remove the server's registered voices.")


@voices.command("list")
def list_voices(url: Url = DEFAULT_URL, model: Model = DEFAULT_MODEL) -> None:
    """One voice a line."""
    with Client(url=url, model=model) as client:
        for voice in client.voices():
            print(_line(voice))


@voices.command()
def add(
    name: Annotated[str | None, typer.Argument(help="At most 64 characters; default: the server draws one.")] = None,
    prompt_audio: Annotated[Path | None, typer.Option(help="Speech to continue; needs --prompt-text.")] = None,
    prompt_latents: Annotated[Path | None, typer.Option(help="Instead of --prompt-audio, from encode.")] = None,
    prompt_text: Annotated[str | None, typer.Option(help="Transcript of the prompt.")] = None,
    reference_audio: Annotated[Path | None, typer.Option(help="A voice to imitate (VoxCPM2).")] = None,
    reference_latents: Annotated[
        Path | None, typer.Option(help="Instead of --reference-audio, from encode --role reference.")
    ] = None,
    url: Url = DEFAULT_URL,
    model: Model = DEFAULT_MODEL,
) -> None:
    """Register a voice for say --voice: a prompt with its transcript, a reference, or both."""
    with Client(url=url, model=model) as client:
        voice = client.add_voice(
            name,
            prompt_audio=prompt_audio,
            prompt_text=prompt_text,
            prompt_latents=given_latents(prompt_latents, "prompt"),
            reference_audio=reference_audio,
            reference_latents=given_latents(reference_latents, "reference"),
        )
    print(_line(voice))


@voices.command()
def remove(
    name: Annotated[str, typer.Argument(help="As it was registered.")],
    url: Url = DEFAULT_URL,
    model: Model = DEFAULT_MODEL,
) -> None:
    """Remove a voice; streams that have begun with it go on."""
    with Client(url=url, model=model) as client:
        client.remove_voice(name)
    print(f"{name}: removed")


def _line(voice: Voice) -> str:
    return f"{voice.name}: {voice.kind}, {voice.seconds:.2f} s, {voice.created}, {voice.made_for}"
