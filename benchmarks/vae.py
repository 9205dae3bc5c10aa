"""The AudioVAE decoder on a CUDA device: `python -m benchmarks.vae [--releases 2] [--batches 1 64] [--json FILE]`.

Random weights in the released sizes, a patch of every stream in one CUDA graph. Each path's ms, the bytes and
operations of the kernels, their share of the device's limit, and the distance to torch in fp32.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.card import describe, this_card
from benchmarks.machine import as_line
from benchmarks.vae_costs import decode_costs
from voxcpm_core.checkpoint.random_init import random_vae_tensors
from voxcpm_core.checkpoint.releases import RELEASES, release_config
from voxcpm_core.config import ModelConfig
from voxcpm_core.runner.replay import Replay
from voxcpm_core.vae import StreamDecoder, VaeDecoder
from voxcpm_core.vae.triton_decoder import FUSED_CHANNELS, TritonVaeDecoder

BATCHES = (1, 8, 16, 32, 64)
PATHS = {"triton": FUSED_CHANNELS, "triton, nothing fused": 0}  # channels that a fused unit has at most
OUTPUT_GAIN = 0.3  # about the level of speech
COMPARED_PATCHES = 3
NUM_LAUNCHES, NUM_REPEATS = 10, 5

Json = dict[str, object]


def exact_fp32() -> None:
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False


def load(generation: str) -> tuple[ModelConfig, VaeDecoder]:
    config = ModelConfig.from_json(release_config(generation))
    tensors = random_vae_tensors(config, OUTPUT_GAIN, torch.Generator().manual_seed(0))
    return config, VaeDecoder.from_tensors(config.vae, tensors, "cuda")


def random_latents(config: ModelConfig, batch: int, num_patches: int) -> Tensor:
    generator = torch.Generator("cuda").manual_seed(batch)
    shape = num_patches, batch, config.feat_dim, config.patch_size
    return torch.randn(shape, generator=generator, device="cuda")


def decoded(decoder: StreamDecoder, latents: Tensor) -> Tensor:
    """Patches [N, B, C, T] from cold streams, whose slots stand in reverse. # [B, samples]"""
    batch = latents.shape[1]
    states = torch.zeros(batch, decoder.state_size, device="cuda")
    slots = torch.arange(batch - 1, -1, -1, device="cuda")
    return torch.cat([decoder.decode_slots(patch, states, slots) for patch in latents], dim=1)


@torch.inference_mode()
def compile_kernels(generation: str, path: str, batches: list[int]) -> None:
    """Leave what these batches need in Triton's cache on disk."""
    config, reference = load(generation)
    decoder = TritonVaeDecoder(reference, PATHS[path])
    for batch in batches:
        decoded(decoder, random_latents(config, batch, 1))


def patch_ms(decoder: StreamDecoder, patch: Tensor) -> tuple[float, float]:
    """Median and spread, over repeats, of a patch [B, C, T] in a CUDA graph."""
    states = torch.zeros(len(patch), decoder.state_size, device="cuda")
    slots = torch.arange(len(patch), device="cuda")
    replay = Replay(lambda: decoder.decode_slots(patch, states, slots))
    times = [_timed_ms(replay.launch) for _ in range(NUM_REPEATS + 1)][1:]
    return statistics.median(times), max(times) - min(times)


def _timed_ms(launch: Callable[[], None]) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(NUM_LAUNCHES):
        launch()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / NUM_LAUNCHES


@torch.inference_mode()
def measure(generation: str, batches: list[int]) -> list[Json]:
    config, reference = load(generation)
    decoders = {name: TritonVaeDecoder(reference, fused_channels) for name, fused_channels in PATHS.items()}
    gb_per_s, tflops = this_card()
    rows = []
    for batch in batches:
        latents = random_latents(config, batch, COMPARED_PATCHES)
        expected = decoded(reference, latents)
        ms, spread_ms = patch_ms(reference, latents[0])
        rows.append({"release": generation, "batch": batch, "path": "torch", "ms": ms, "spread_ms": spread_ms})
        for name, decoder in decoders.items():
            error = (decoded(decoder, latents) - expected).double()
            ms, spread_ms = patch_ms(decoder, latents[0])
            costs = decode_costs(config.vae, batch, config.patch_size, decoder.state_size, PATHS[name])
            snr_db = 10 * torch.log10(expected.double().square().mean() / error.square().mean())
            rows.append({
                "release": generation, "batch": batch, "path": name, "ms": ms, "spread_ms": spread_ms,
                "gb": costs.bytes / 1e9, "gflop": costs.operations / 1e9,
                "limit_share": costs.limit_ms(gb_per_s, tflops) / ms,
                "snr_db": float(snr_db), "largest_difference": float(error.abs().max()),
            })  # fmt: skip
        for row in rows[-1 - len(decoders) :]:
            print(_line(row), flush=True)
    return rows


def _line(row: Json) -> str:
    start = "| VoxCPM{release} | {batch} | {path} | {ms:.3f} ± {spread_ms:.3f} |".format(**row)
    if "gb" not in row:
        return start + " | | | | |"
    return start + (
        " {gb:.3f} | {gflop:.1f} | {limit_share:.0%} | {snr_db:.1f} | {largest_difference:.1e} |".format(**row)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--releases", nargs="*", default=list(reversed(RELEASES)), choices=RELEASES)
    parser.add_argument("--batches", nargs="*", type=int, default=list(BATCHES))
    parser.add_argument("--json", type=Path, help="file to write the rows to")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device", file=sys.stderr)
        return 1
    exact_fp32()
    # One after the other the kernels would take most of the time.
    halves = arguments.batches[::2], arguments.batches[1::2]
    jobs = [(arguments.releases[0], path, half) for path in PATHS for half in halves]
    with ProcessPoolExecutor(len(jobs), mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(compile_kernels, *zip(*jobs, strict=True)))
    print(as_line(describe()))
    print("| model | streams | path | ms a patch | GB | GFLOP | share of the limit | SNR dB | largest difference |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    rows = [row for generation in arguments.releases for row in measure(generation, arguments.batches)]
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
