"""Every metric there is; the documentation, the dashboard and the alert rules are checked against this list."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from voxcpm_core.errors import ErrorCode
from voxcpm_core.types import FinishReason

# `gpu_uuid` as in Triton's own metrics, "cpu" without one. Not `instance`, which Prometheus gives to what it scrapes.
LABELS = ("model", "version", "model_instance", "gpu_uuid", "stub_pid")


class Kind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"  # two counters, NAME_sum and NAME_count, where the server has none


@dataclass(frozen=True)
class Metric:
    name: str
    kind: Kind
    meaning: str
    label: str = ""  # beside LABELS
    values: tuple[str, ...] = ("",)  # of that label, which are there from the start: a rate needs the 0
    buckets: tuple[float, ...] = ()


FAILURES = (ErrorCode.INTERNAL, ErrorCode.DEADLINE_EXCEEDED)  # also of a request without a slot
_REFUSALS = tuple(code.value for code in ErrorCode if code not in (ErrorCode.CANCELLED, *FAILURES))
_WAITS_S = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_TTFA_S = (0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, 30.0)
_GAPS_S = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 2.0, 5.0, 10.0)
_DURATIONS_S = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)
_STEPS_S = (0.002, 0.004, 0.006, 0.008, 0.012, 0.016, 0.024, 0.032, 0.048, 0.064, 0.08, 0.12, 0.16, 0.32, 0.64, 2.0)
_ROWS = (1.0, 2.0, 4.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0, 256.0)
_RATIOS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 2.0, 4.0)

READY = Metric("voxcpm_ready", Kind.GAUGE, "1 while requests are taken, 0 while the engine's process is started again")
DRAINING = Metric("voxcpm_draining", Kind.GAUGE, "1 once it drains, and takes no more requests")
OPEN = Metric("voxcpm_open_requests", Kind.GAUGE, "requests that the model has received and not ended")
RUNNING = Metric("voxcpm_running_requests", Kind.GAUGE, "requests that hold a slot of the engine")
WAITING = Metric("voxcpm_waiting_requests", Kind.GAUGE, "requests in the engine's own queue")
MAX_RUNNING = Metric("voxcpm_max_running_requests", Kind.GAUGE, "slots of the engine")
MAX_WAITING = Metric("voxcpm_max_waiting_requests", Kind.GAUGE, "places in the engine's own queue")
PAGES_USED = Metric("voxcpm_kv_pages_used", Kind.GAUGE, "pages of the KV cache that requests hold")
PAGES_KEPT = Metric(
    "voxcpm_kv_pages_kept", Kind.GAUGE, "pages of the KV cache with references that came before and no request uses"
)
PAGES = Metric("voxcpm_kv_pages", Kind.GAUGE, "pages of the KV cache")
VOICE_BYTES = Metric(
    "voxcpm_voice_cache_bytes", Kind.GAUGE, "latents and embeddings that the device keeps of prompts and references"
)
UPDATED = Metric("voxcpm_updated_timestamp_seconds", Kind.GAUGE, "Unix time of the latest update, to 5 s")

RECEIVED = Metric("voxcpm_requests_received_total", Kind.COUNTER, "requests that Triton handed over")
ADMITTED = Metric("voxcpm_requests_admitted_total", Kind.COUNTER, "requests that got a slot")
FINISHED = Metric(
    "voxcpm_requests_finished_total", Kind.COUNTER, "requests with all their audio sent, by why it ended",
    "reason", tuple(reason.value for reason in FinishReason),
)
CANCELLED = Metric("voxcpm_requests_cancelled_total", Kind.COUNTER, "requests whose caller left")
FAILED = Metric(
    "voxcpm_requests_failed_total", Kind.COUNTER,
    "requests that ended with INTERNAL or DEADLINE_EXCEEDED, or with any error once they had a slot",
    "code", tuple(code.value for code in (*FAILURES, ErrorCode.NOT_READY, ErrorCode.DRAINING)),
)
REJECTED = Metric(
    "voxcpm_requests_rejected_total", Kind.COUNTER, "requests that ended with another error before they had a slot",
    "code", _REFUSALS,
)
AUDIO = Metric("voxcpm_audio_seconds_total", Kind.COUNTER, "audio sent")
PREFILLS = Metric("voxcpm_prefills_total", Kind.COUNTER, "prefills, one for each request and further attempt")
PREFILL_POSITIONS = Metric("voxcpm_prefill_positions_total", Kind.COUNTER, "positions that prefills ran")
SHARED_POSITIONS = Metric(
    "voxcpm_shared_positions_total", Kind.COUNTER, "positions that prefills need not run: kept pages held them"
)
ENCODINGS = Metric(
    "voxcpm_audio_encodings_total", Kind.COUNTER, "runs of the VAE encoder over a prompt, reference or file"
)
VOICE_HITS = Metric(
    "voxcpm_voice_cache_hits_total", Kind.COUNTER, "prompts and references of prefills that were known from before"
)
VOICE_MISSES = Metric(
    "voxcpm_voice_cache_misses_total", Kind.COUNTER, "prompts and references of prefills that were not"
)
RESTARTS = Metric("voxcpm_worker_restarts_total", Kind.COUNTER, "times that the engine's process was started again")

QUEUE_WAIT = Metric(
    "voxcpm_queue_wait_seconds", Kind.HISTOGRAM,
    "from receiving a request to its slot: at the gate, decoding its audio, in the engine's queue", buckets=_WAITS_S,
)
TTFA = Metric(
    "voxcpm_time_to_first_audio_seconds", Kind.HISTOGRAM,
    "from receiving a request to its first audio, of requests with stream true", buckets=_TTFA_S,
)
GAP = Metric("voxcpm_chunk_gap_seconds", Kind.HISTOGRAM, "between two chunks of a request", buckets=_GAPS_S)
DURATION = Metric(
    "voxcpm_request_duration_seconds", Kind.HISTOGRAM,
    "from receiving a request to its last chunk, of finished requests", buckets=_DURATIONS_S,
)
REAL_TIME = Metric(
    "voxcpm_real_time_ratio", Kind.HISTOGRAM,
    "RTF: the duration of a finished request over its seconds of audio", buckets=_RATIOS,
)
STEP = Metric("voxcpm_step_seconds", Kind.HISTOGRAM, "wall time of a step of the engine", buckets=_STEPS_S)
BATCH_SIZE = Metric(
    "voxcpm_step_batch_size", Kind.HISTOGRAM, "requests in a step; the sum is the patches made", buckets=_ROWS,
)

METRICS = (
    READY, DRAINING, OPEN, RUNNING, WAITING, MAX_RUNNING, MAX_WAITING, PAGES_USED, PAGES_KEPT, PAGES, VOICE_BYTES,
    UPDATED, RECEIVED, ADMITTED, FINISHED, CANCELLED, FAILED, REJECTED, AUDIO, PREFILLS,
    PREFILL_POSITIONS, SHARED_POSITIONS, ENCODINGS, VOICE_HITS, VOICE_MISSES, RESTARTS,
    QUEUE_WAIT, TTFA, GAP, DURATION, REAL_TIME, STEP, BATCH_SIZE,
)
