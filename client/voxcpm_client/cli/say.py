"""`say`: one utterance or a long text, streamed to the speakers, into a file or to standard output."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from voxcpm_client.cli.control import DEFAULT_MODEL, DEFAULT_URL, Model, Url
from voxcpm_client.cli.latents import given_latents
from voxcpm_client.cli.output import STANDARD_OUTPUT, format_of, write
from voxcpm_client.cli.progress import shown, summary
from voxcpm_client.cli.text import STANDARD_INPUT, pieces_of
from voxcpm_client.client import Client
from voxcpm_client.errors import InvalidParameter, TooLarge
from voxcpm_client.playback import find_player, play, played
from voxcpm_client.types import Chunk, SpeechOptions

_PLAYED_FORMATS = ("pcm_s16le", "wav")


def say(
    text: Annotated[
        str | None,
        typer.Argument(help="What to say; - reads it from standard input as it comes, sentence by sentence."),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="File to write; - is standard output; default: the speakers.")
    ] = None,
    also_play: Annotated[bool, typer.Option("--play", help="Play it also when -o is given.")] = False,
    file: Annotated[Path | None, typer.Option(help="Say this text file, sentence by sentence.")] = None,
    url: Url = DEFAULT_URL,
    model: Model = DEFAULT_MODEL,
    audio_format: Annotated[
        str | None, typer.Option("--format", help="pcm_s16le, pcm_f32le, wav, mp3, flac, opus; default: by the suffix.")
    ] = None,
    bitrate: Annotated[int | None, typer.Option(help="Of mp3 and opus, in kbit/s.")] = None,
    sample_rate: Annotated[int | None, typer.Option(help="In Hz; default: the model's own.")] = None,
    seed: Annotated[int | None, typer.Option(help="Any 64-bit integer; same seed, same speech.")] = None,
    voice: Annotated[str | None, typer.Option(help="A registered voice, instead of the five options below.")] = None,
    prompt_audio: Annotated[Path | None, typer.Option(help="Speech to continue; needs --prompt-text.")] = None,
    prompt_latents: Annotated[Path | None, typer.Option(help="Instead of --prompt-audio, from encode.")] = None,
    prompt_text: Annotated[str | None, typer.Option(help="Transcript of the prompt.")] = None,
    reference_audio: Annotated[Path | None, typer.Option(help="A voice to imitate (VoxCPM2).")] = None,
    reference_latents: Annotated[
        Path | None, typer.Option(help="Instead of --reference-audio, from encode --role reference.")
    ] = None,
    lora: Annotated[str | None, typer.Option(help="A registered adapter.")] = None,
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
    normalize: Annotated[bool | None, typer.Option(help="Numbers and symbols as words.")] = None,
    retry_badcase: Annotated[bool | None, typer.Option(help="Try again where the length cap was met.")] = None,
    timeout_s: Annotated[float, typer.Option(help="Time for a request; each sentence of a long text is one.")] = 900.0,
) -> None:
    """Say TEXT, standard input (-) or a text --file: to the speakers, into a file (-o speech.wav) or a pipe (-o -)."""
    if (text is None) == (file is None):
        raise typer.BadParameter("give either TEXT or --file")
    audio_format = audio_format or (format_of(output) if output else "pcm_s16le")
    options: SpeechOptions = {
        "format": audio_format, "bitrate": bitrate, "sample_rate": sample_rate, "seed": seed, "voice": voice,
        "prompt_audio": prompt_audio, "prompt_latents": given_latents(prompt_latents, "prompt"),
        "prompt_text": prompt_text, "reference_audio": reference_audio,
        "reference_latents": given_latents(reference_latents, "reference"), "lora": lora,
        "cfg_value": cfg_value, "inference_timesteps": timesteps, "temperature": temperature,
        "min_length": min_length, "max_length": max_length, "length_cap": length_cap, "ignore_stop": ignore_stop,
        "normalize": normalize, "retry_badcase": retry_badcase,
    }  # fmt: skip
    with Client(url=url, model=model, timeout_s=timeout_s) as client:
        print(_say_text(client, text, file, options, output, also_play, audio_format), file=sys.stderr)


def _say_text(
    client: Client, text: str | None, file: Path | None, options: SpeechOptions, output: str | None, also_play: bool,
    audio_format: str,
) -> str:  # fmt: skip
    """In one piece, or sentence by sentence; returns what to tell about it."""
    in_sentences = text is None or text == STANDARD_INPUT
    if in_sentences:
        stream = client.stream_text(pieces_of(file or STANDARD_INPUT), **options)
    else:
        stream = client.stream(text or "", **options)
    try:
        with closing(stream):
            return _say(stream, output, also_play, audio_format)
    except TooLarge as error:
        hint = "" if in_sentences else "; --file says a long text sentence by sentence"
        raise TooLarge(f"{error}{hint}") from None


def _say(stream: Generator[Chunk, None, None], output: str | None, also_play: bool, audio_format: str) -> str:
    """Send the stream where it shall go; returns what to tell about it."""
    is_played = also_play or output is None
    if is_played and audio_format not in _PLAYED_FORMATS:
        raise InvalidParameter(f"--format {audio_format} cannot be played while it comes; wav and pcm_s16le can")
    with closing(shown(stream, "say")) as progress:
        if not is_played:
            return summary(write(progress, output or STANDARD_OUTPUT, audio_format))
        if output is None:
            return summary(play(progress), is_played=True)
        with closing(played(progress, find_player())) as chunks:
            return summary(write(chunks, output, audio_format), is_played=True)
