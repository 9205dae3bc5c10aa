"""The commands, and errors as one line."""

from __future__ import annotations

import importlib.metadata
import sys
from typing import Annotated

import typer

from voxcpm_client.cli.bench import bench
from voxcpm_client.cli.checkpoints import convert, make_checkpoint
from voxcpm_client.cli.control import cancel, drain, encode, status
from voxcpm_client.cli.demo import demo
from voxcpm_client.cli.exit_status import exit_status
from voxcpm_client.cli.loras import loras
from voxcpm_client.cli.say import say
from voxcpm_client.cli.serve import serve
from voxcpm_client.cli.voices import voices
from voxcpm_client.errors import VoxError
from voxcpm_client.server import ServerError

app = typer.Typer(
    name="voxcpm-triton",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"voxcpm-triton {importlib.metadata.version('voxcpm-triton')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """VoxCPM text-to-speech on Triton Inference Server."""


app.command(context_settings={"allow_extra_args": True})(serve)
app.command()(say)
app.command()(status)
app.command()(cancel)
app.command()(drain)
app.command()(encode)
app.add_typer(voices, name="voices")
app.add_typer(loras, name="loras")
app.command()(bench)
app.command()(demo)
app.command("make-checkpoint")(make_checkpoint)
app.command()(convert)


def main() -> None:
    """Run the command line; an expected failure is one line on stderr and an exit status that tells its kind."""
    try:
        app()
    except (VoxError, ServerError, OSError, ValueError) as error:
        print(f"voxcpm-triton: {_line(error)}", file=sys.stderr)
        sys.exit(exit_status(error))


def _line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)
