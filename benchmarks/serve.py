"""A server under load: `python -m benchmarks.serve [--model DIR] [--url HOST:PORT]`.

Starts a real tritonserver on the model repository, or takes one that runs (`--url`), and measures it twice over gRPC:
by `voxcpm-triton bench` in closed loops, and by perf_analyzer where that is installed. All requests have the same
number of patches. Prints machine and tables; `--json` keeps everything.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import as_line, describe_machine
from benchmarks.perf_export import complete_export, report
from voxcpm_client.load.texts import SENTENCES
from voxcpm_client.server import TritonServer, find_repository

CLIENTS = (1, 16, 64)
WARM_UP = 8
PERF_REQUESTS_PER_CLIENT, PERF_LEAST_REQUESTS = 2, 6  # its exports hold all audio


@dataclass(frozen=True)
class Target:
    """A server, and the model on it."""

    url: str
    model: str


@contextmanager
def running_server(settings: dict[str, str]) -> Iterator[str]:
    """The gRPC address of a server of this package's repository, with its log on stderr where it does not start."""
    with tempfile.TemporaryDirectory(prefix="voxcpm-serve-") as folder:
        server = TritonServer(find_repository(), settings=settings, log_file=Path(folder) / "tritonserver.log",
                              arguments=("--exit-timeout-secs=5",))  # fmt: skip
        with server:
            yield server.grpc_url


def run_bench(target: Target, clients: Sequence[int], num_patches: int, folder: Path) -> dict[str, Any]:
    """The report of `voxcpm-triton bench`, which prints its table. Raises CalledProcessError when requests failed."""
    file = folder / "bench.json"
    load = ["--clients", *map(str, clients), "--warm-up", str(WARM_UP)]
    exact = ["--max-length", str(num_patches), "--ignore-stop"]
    where = ["--url", target.url, "--model", target.model, "--json", str(file)]
    subprocess.run([sys.executable, "-m", "voxcpm_client", "bench", *load, *exact, *where], check=True)
    told: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return told


def perf_requests(num_patches: int) -> dict[str, Any]:
    """Requests for `--input-data`, with the texts of `bench`."""
    exact = {"max_length": [num_patches], "ignore_stop": [True], "length_cap": [False]}
    return {"data": [{"target_text": [text], "seed": [n], **exact} for n, text in enumerate(SENTENCES)]}


def run_perf_analyzer(program: str, target: Target, count: int, num_patches: int, folder: Path) -> dict[str, Any]:
    """What perf_analyzer's export tells of so many clients. Raises as `run_once` and `complete_export` do."""
    inputs, export = folder / "requests.json", folder / f"export-{count}.json"
    inputs.write_text(json.dumps(perf_requests(num_patches)), encoding="utf-8")
    number = max(PERF_LEAST_REQUESTS, PERF_REQUESTS_PER_CLIENT * count)
    command = [
        program, "-m", target.model, "-u", target.url, "-i", "grpc", "--streaming", "--async",
        "--input-data", str(inputs), "--concurrency-range", str(count), "--request-count", str(number),
        "--profile-export-file", str(export),
    ]  # fmt: skip
    (load,) = complete_export(lambda: run_once(command), export)
    print(report(load), flush=True)
    return {
        "clients": count,
        "n": len(load.requests),
        "ttfa_ms": [request.ttfa_ms for request in load.requests],
        "largest_gap_ms": max((gap for request in load.requests for gap in request.gaps_ms), default=None),
        "rtf": [request.rtf for request in load.requests],
        "audio_s": sum(request.audio_s for request in load.requests),
    }


def run_once(command: Sequence[str]) -> None:
    """Raises RuntimeError with the program's words where it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"perf_analyzer ended with status {done.returncode}: {(done.stdout + done.stderr)[-1000:]}")


def measure(target: Target, arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="voxcpm-serve-") as scratch:
        print("\nvoxcpm-triton bench, closed loop", flush=True)
        bench = run_bench(target, arguments.clients, arguments.patches, Path(scratch))
        print("\nperf_analyzer", flush=True)
        return {"bench": bench, "perf_analyzer": measure_with_perf_analyzer(target, arguments, Path(scratch))}


def measure_with_perf_analyzer(target: Target, arguments: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Its rows; less of them, with a message, where it is missing or fails: what `bench` measured is kept."""
    program = shutil.which(arguments.perf_analyzer)
    if program is None:
        print("is not installed: python -m benchmarks.install_perf_analyzer, or --perf-analyzer PATH")
        return []
    rows: list[dict[str, Any]] = []
    try:
        for count in arguments.clients:
            rows.append(run_perf_analyzer(program, target, count, arguments.patches, folder))
    except (RuntimeError, OSError, KeyError, ValueError) as error:
        print(f"failed, {type(error).__name__}: {error}")
    return rows


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="demo", help="checkpoint folder, Hugging Face id or demo")
    parser.add_argument("--url", help="gRPC address of a server that runs already; nothing is started then")
    parser.add_argument("--model-name", default="voxcpm", help="its name on the server")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings, as cuda_graphs=off")
    parser.add_argument("--clients", type=int, nargs="+", default=list(CLIENTS))
    parser.add_argument("--patches", type=int, default=50, help="of each request")
    parser.add_argument("--perf-analyzer", default="perf_analyzer", help="the program, where it is not on PATH")
    parser.add_argument("--json", type=Path, help="file for all figures")
    chosen = parser.parse_args(arguments)
    wrong = [each for each in chosen.set if "=" not in each]
    if wrong:
        parser.error(f"--set: expected NAME=VALUE, got {wrong[0]!r}")
    return chosen


def main(given: Sequence[str] | None = None) -> None:
    arguments = parse(given)
    machine = describe_machine(("torch", "triton", "numpy", "tritonclient"))
    print(as_line(machine))
    if arguments.url is not None:
        measured = measure(Target(arguments.url, arguments.model_name), arguments)
    else:
        pairs = dict(each.split("=", 1) for each in arguments.set)
        settings = {f"VOXCPM_{name.upper()}": value for name, value in ({"model": arguments.model} | pairs).items()}
        with running_server(settings) as url:
            measured = measure(Target(url, arguments.model_name), arguments)
    if arguments.json is not None:
        told = {"machine": machine, "model": arguments.model, "patches": arguments.patches, "set": arguments.set}
        arguments.json.write_text(json.dumps({**told, **measured}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
