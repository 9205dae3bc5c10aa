"""Real CUDA faults in a worker: part of `gpu_check`."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

from benchmarks.faulty_worker import ILLEGAL_INDEX_SEED, OUT_OF_MEMORY_SEED
from tests.worker.streams import CONFIG, ENDLESS, SHORT, Waiting, finished, submit, wait_until
from voxcpm_core.types import SpeechRequest
from voxcpm_core.worker import WorkerHandle, process, start_worker

FAULT_LIMIT_S = 2.0
RESTART_LIMIT_S = 120.0

Check = Callable[[str, float, float], None]  # name, value, limit


def check_faults(check: Check) -> None:
    """Seconds to the INTERNAL of every stream after a lost device, and that one failed step hurts its own streams."""
    process.MODULE = "benchmarks.faulty_worker"
    worker = start_worker(CONFIG, "cuda:0")
    try:
        expected = finished(worker, SHORT).latents
        check("out of memory: streams of other steps hurt", _hurt_by_failed_step(worker), 0)
        check("lost device: seconds to the last INTERNAL", _seconds_to_internal(worker), FAULT_LIMIT_S)
        start_s = time.monotonic()
        wait_until(lambda: worker.stats().num_restarts == 1 and worker.is_ready, RESTART_LIMIT_S)
        print(f"     ready again after {time.monotonic() - start_s:.1f} s", flush=True)
        check("lost device: afterwards as before", float(abs(finished(worker, SHORT).latents - expected).max()), 1e-2)
    finally:
        worker.close()


def _with_seed(request: SpeechRequest, seed: int) -> SpeechRequest:
    return dataclasses.replace(request, params=dataclasses.replace(request.params, seed=seed))


def _hurt_by_failed_step(worker: WorkerHandle) -> int:
    """Streams before and after the one that ran out of memory that did not end as they should."""
    failed = finished(worker, _with_seed(SHORT, OUT_OF_MEMORY_SEED))
    later = [submit(worker, SHORT)[1] for _ in range(3)]
    num_hurt = int(failed.error_code != "INTERNAL") + int(worker.stats().num_restarts != 0)
    for stream in later:
        stream.has_ended.wait()
        num_hurt += len(stream.patches) != SHORT.params.max_length
    return num_hurt


def _seconds_to_internal(worker: WorkerHandle) -> float:
    streams: list[Waiting] = [submit(worker, ENDLESS)[1] for _ in range(3)]
    for stream in streams:
        stream.has_patch.wait()
    start_s = time.monotonic()
    streams.append(submit(worker, _with_seed(SHORT, ILLEGAL_INDEX_SEED))[1])
    for stream in streams:
        stream.has_ended.wait()
        if stream.error_code != "INTERNAL":
            return float("inf")
    return max(stream.ended_s for stream in streams) - start_s
