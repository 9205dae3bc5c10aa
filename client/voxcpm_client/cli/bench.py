"""`bench`: load on a running server, and what its callers met."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from voxcpm_client.cli.bench_rows import limits_of, patterns_of
from voxcpm_client.cli.exit_status import exit_status
from voxcpm_client.cli.output import require_folder
from voxcpm_client.load import picture, table
from voxcpm_client.load.asking import Script
from voxcpm_client.load.crew import Crew, default_processes
from voxcpm_client.load.patterns import Clients, Pattern
from voxcpm_client.load.plan import Limits, measure
from voxcpm_client.load.plan import warm_up as warm_up_server
from voxcpm_client.load.report import as_json
from voxcpm_client.load.row import Row
from voxcpm_client.load.server_info import ask_version
from voxcpm_client.load.texts import SENTENCES, read_texts
from voxcpm_client.transport import check_url
from voxcpm_client.types import SpeechOptions

_INTERRUPTED = 130
_BUSY_STREAMS = 64  # what arrivals are thought to keep running, of which nobody knows before


def bench(
    values: Annotated[
        list[str] | None, typer.Argument(help="More values of --clients or --rate; each is a row of the report.")
    ] = None,
    clients: Annotated[
        int | None, typer.Option(help="Closed loop: so many clients, each sends when its last request has ended.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Open loop: requests per second, Poisson arrivals.")] = None,
    ramp: Annotated[str | None, typer.Option(help="Open loop FROM:TO:SECONDS, a rate that changes evenly.")] = None,
    requests: Annotated[
        int | None, typer.Option(help="Of a row. Default: 4 a client and at least 10; 60 at a rate; a ramp's own.")
    ] = None,
    duration: Annotated[float | None, typer.Option(help="Of a row, in seconds; running requests go on.")] = None,
    begin_over: Annotated[float, typer.Option(help="Clients begin evenly over so many seconds, not at once.")] = 0.0,
    warm_up: Annotated[int, typer.Option(min=0, help="Requests before each row that are not counted.")] = 1,
    url: Annotated[str, typer.Option(help="gRPC address of the server, host:port.")] = "localhost:8001",
    model: Annotated[str, typer.Option(help="Name of the model on the server.")] = "voxcpm",
    texts: Annotated[Path | None, typer.Option(help="What to say, a text a line; default: ordinary sentences.")] = None,
    audio_format: Annotated[str, typer.Option("--format", help="pcm_s16le, pcm_f32le, wav, mp3, ...")] = "pcm_s16le",
    max_length: Annotated[int | None, typer.Option(help="In patches.")] = None,
    ignore_stop: Annotated[bool | None, typer.Option(help="Go on to --max-length, whatever the text.")] = None,
    cfg_value: Annotated[float | None, typer.Option(help="Guidance, 0.1 to 10.")] = None,
    timesteps: Annotated[int | None, typer.Option(help="Solver steps, from 2.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**62, help="Of arrivals, and of requests one by one.")] = 0,
    prompt_audio: Annotated[Path | None, typer.Option(help="Speech to continue; needs --prompt-text.")] = None,
    prompt_text: Annotated[str | None, typer.Option(help="Transcript of --prompt-audio.")] = None,
    reference_audio: Annotated[Path | None, typer.Option(help="A voice to imitate (VoxCPM2).")] = None,
    timeout_s: Annotated[float, typer.Option(help="Time for a request.")] = 900.0,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Of the generator; default: one for 16 clients, by the cores there are.")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="File for all figures and every request.")] = None,
    picture_file: Annotated[Path | None, typer.Option("--picture", help="PNG file; needs the extra 'picture'.")] = None,
) -> None:
    """Measure a running server: TTFA, gaps, underruns, real-time factor, errors. Ctrl-C ends it early."""
    try:
        patterns = patterns_of(clients, begin_over, rate, ramp, values or [])
        plan = [(pattern, limits_of(pattern, requests, duration)) for pattern in patterns]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if ignore_stop and max_length is None:
        raise typer.BadParameter("--ignore-stop needs --max-length, at which speech then ends")
    options: SpeechOptions = {
        "format": audio_format, "max_length": max_length, "cfg_value": cfg_value, "inference_timesteps": timesteps,
        "prompt_audio": _bytes(prompt_audio), "prompt_text": prompt_text, "reference_audio": _bytes(reference_audio),
    }  # fmt: skip
    if ignore_stop:
        options |= {"ignore_stop": True, "length_cap": False}
    script = Script(url, model, timeout_s, read_texts(texts) if texts else SENTENCES, options, seed)
    _check(script, json_file, picture_file)
    most = max(pattern.count if isinstance(pattern, Clients) else _BUSY_STREAMS for pattern in patterns)
    _run(script, plan, warm_up, processes or default_processes(most), json_file, picture_file)


def _bytes(file: Path | None) -> bytes | None:
    return None if file is None else file.read_bytes()


def _run(
    script: Script,
    plan: Sequence[tuple[Pattern, Limits]],
    num_warm_up: int,
    num_processes: int,
    json_file: Path | None,
    picture_file: Path | None,
) -> None:
    server = ask_version(script.url)
    rows: list[Row] = []
    with Crew(num_processes) as crew, _stopped_by_signals(crew):
        rows.extend(_measured(crew, script, plan, num_warm_up))
        is_stopped = crew.is_stopped
    if json_file is not None:
        json_file.write_text(json.dumps(as_json(script, server, rows, is_stopped), indent=1) + "\n", encoding="utf-8")
    if picture_file is not None and rows:
        picture.draw(picture_file, rows)
    _end(rows, is_stopped)


def _check(script: Script, json_file: Path | None, picture_file: Path | None) -> None:
    """Raise before anything is measured what would else come out afterwards."""
    check_url(script.url)
    script.request(0)
    if json_file is not None:
        require_folder(json_file.resolve().parent)
    if picture_file is not None:
        require_folder(picture_file.resolve().parent)
        picture.require_matplotlib()


def _measured(crew: Crew, script: Script, plan: Sequence[tuple[Pattern, Limits]], num_warm_up: int) -> Iterator[Row]:
    """Rows as they are done, each printed; none begins once the crew is stopped."""
    for row_index, (pattern, limits) in enumerate(plan):
        if num_warm_up:
            warm_up_server(crew, script, pattern, num_warm_up)
        if crew.is_stopped:
            return
        if row_index == 0:
            print(table.head(), flush=True)
        row = measure(crew, script, pattern, limits, script.seed)
        print(table.text_of(row), flush=True)
        yield row


@contextmanager
def _stopped_by_signals(crew: Crew) -> Iterator[None]:
    def stop(_signal: int, _frame: FrameType | None) -> None:
        crew.stop()

    before = {ending: signal.signal(ending, stop) for ending in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for ending, handler in before.items():
            signal.signal(ending, handler)


def _end(rows: Sequence[Row], is_stopped: bool) -> None:
    """Leave with the status that tells how it went."""
    if is_stopped:
        raise typer.Exit(_INTERRUPTED)
    outcomes = [outcome for row in rows for outcome in row.outcomes]
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    if errors:
        told = f"{len(errors)} of {len(outcomes)} requests failed; the first: {errors[0]}"
        print(f"voxcpm-triton: {told}", file=sys.stderr)
        raise typer.Exit(exit_status(errors[0]))
