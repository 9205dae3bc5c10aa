"""`say`: stream one utterance from a running server into a file or a pipe."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from voxcpm_client.cli.output import format_of, write
from voxcpm_client.cli.progress import shown, summary
from voxcpm_client.client import Client


def say(
    text: Annotated[str, typer.Argument(help="What to say.")],
    output: Annotated[str, typer.Option("--output", "-o", help="File to write; - is standard output.")],
    url: Annotated[str, typer.Option(help="gRPC address of the server, host:port.")] = "localhost:8001",
    audio_format: Annotated[
        str | None, typer.Option("--format", help="pcm_s16le, pcm_f32le, wav, mp3, flac, opus; default: by the suffix.")
    ] = None,
    bitrate: Annotated[int | None, typer.Option(help="Of mp3 and opus, in kbit/s.")] = None,
    sample_rate: Annotated[int | None, typer.Option(help="In Hz; default: the model's own.")] = None,
    seed: Annotated[int | None, typer.Option(help="Any 64-bit integer; same seed, same speech.")] = None,
    prompt_audio: Annotated[Path | None, typer.Option(help="Speech to continue; needs --prompt-text.")] = None,
    prompt_text: Annotated[str | None, typer.Option(help="Transcript of --prompt-audio.")] = None,
    reference_audio: Annotated[Path | None, typer.Option(help="A voice to imitate (VoxCPM2).")] = None,
    cfg_value: Annotated[float | None, typer.Option(help="Guidance, 0.1 to 10.")] = None,
    timesteps: Annotated[int | None, typer.Option(help="Solver steps, from 2.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 to 2.")] = None,
    min_length: Annotated[int | None, typer.Option(help="In patches.")] = None,
    max_length: Annotated[int | None, typer.Option(help="In patches.")] = None,
    length_cap: Annotated[
        bool | None,
        typer.Option(help="On by default: end at 6 x tokens + 10 patches, also where --max-length allows more."),
    ] = None,
    ignore_stop: Annotated[bool | None, typer.Option(help="Go on to the length limit.")] = None,
    timeout_s: Annotated[float, typer.Option(help="Time for the whole request.")] = 900.0,
) -> None:
    """Say TEXT: stream it from a running server into a file (-o speech.wav) or to standard output (-o -)."""
    audio_format = audio_format or format_of(output)
    stream = Client(url=url, timeout_s=timeout_s).stream(
        text,
        format=audio_format,
        bitrate=bitrate,
        sample_rate=sample_rate,
        seed=seed,
        prompt_audio=prompt_audio,
        prompt_text=prompt_text,
        reference_audio=reference_audio,
        cfg_value=cfg_value,
        inference_timesteps=timesteps,
        temperature=temperature,
        min_length=min_length,
        max_length=max_length,
        length_cap=length_cap,
        ignore_stop=ignore_stop,
    )
    with closing(stream), closing(shown(stream, "say")) as progress:
        speech = write(progress, output, audio_format)
    print(summary(speech), file=sys.stderr)
