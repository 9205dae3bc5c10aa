"""A GPU's memory while a model is loaded, used and unloaded again and again: `python -m benchmarks.reloads`.

Starts a real tritonserver with explicit loading. In a round the model is loaded, speaks, refuses a request, loses a
caller in the middle of a stream, and is unloaded. Prints what each round leaves, by nvidia-smi and /proc; ends with
status 1 where the last left a process, or more of the GPU's memory than the first.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import tritonclient.grpc as grpcclient

from benchmarks.machine import as_line, describe_machine
from tests.soak.processes import holdings
from voxcpm_client import VoxError, stream, synthesize
from voxcpm_client.server import TritonServer, find_repository

MODEL = "voxcpm"
LIMIT_S = 30.0  # for the model's processes to go
GROWN_MIB = 16  # of the GPU's memory: what the driver keeps may change


def gpu_mib() -> float:
    """In use of all GPUs, by whomever; NaN where there is no nvidia-smi."""
    if shutil.which("nvidia-smi") is None:
        return math.nan
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return sum(map(float, subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()))


def use(url: str) -> None:
    """One who hears all, one who is refused, one who leaves."""
    speech = synthesize("Hello.", url=url, max_length=4, seed=1)
    if not speech.num_samples:
        raise RuntimeError("no sound")
    with suppress(VoxError):
        synthesize(" ", url=url)
        raise RuntimeError("a text of nothing was spoken")
    chunks = stream("Nobody hears the end of this sentence.", url=url, max_length=200)
    next(chunks)
    chunks.close()


def run_round(server: TritonServer, client: grpcclient.InferenceServerClient) -> dict[str, float]:
    start_s = time.monotonic()
    client.load_model(MODEL)
    ready_s, loaded_mib = time.monotonic() - start_s, gpu_mib()
    use(server.grpc_url)
    client.unload_model(MODEL)
    end_s = time.monotonic() + LIMIT_S
    while len(left := holdings(server.pid)) > 1 and time.monotonic() < end_s:
        time.sleep(0.05)
    return {
        "ready_s": ready_s, "loaded_gpu_mib": loaded_mib, "left_gpu_mib": gpu_mib(), "processes": len(left),
        "threads": left[0].threads, "descriptors": left[0].descriptors, "rss_mib": left[0].rss_kib / 1024,
    }  # fmt: skip


def measure(model: str, num_rounds: int) -> list[dict[str, float]]:
    settings = {"VOXCPM_MODEL": model, "VOXCPM_MAX_RUNNING": "4"}
    rounds = []
    with tempfile.TemporaryDirectory(prefix="voxcpm-reloads-") as folder:
        server = TritonServer(
            find_repository(), settings=settings, log_file=Path(folder) / "tritonserver.log",
            arguments=("--model-control-mode=explicit", "--exit-timeout-secs=5"),
        )  # fmt: skip
        with server, grpcclient.InferenceServerClient(server.grpc_url) as client:
            print(f"nothing loaded: {gpu_mib():g} MiB of the GPU in use", flush=True)
            for number in range(1, num_rounds + 1):
                rounds.append(run_round(server, client))
                figures = ", ".join(f"{name} {value:.4g}" for name, value in rounds[-1].items())
                print(f"round {number}: {figures}", flush=True)
    return rounds


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="demo", help="checkpoint folder, Hugging Face id or demo")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    machine: dict[str, Any] = describe_machine()
    print(as_line(machine))
    rounds = measure(arguments.model, arguments.rounds)
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine, "rounds": rounds}, indent=1) + "\n")
    first, last = rounds[0], rounds[-1]
    grown = last["left_gpu_mib"] > first["left_gpu_mib"] + GROWN_MIB
    return int(grown or last["processes"] > 1)


if __name__ == "__main__":
    sys.exit(main())
