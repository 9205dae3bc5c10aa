"""Train an adapter that makes a finished voice speak as the one speaker of a corpus."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from demo_voice.batches import BatchSettings
from demo_voice.corpus import read_shard, shard_paths
from demo_voice.export import folder_bytes, read_main, read_vae
from demo_voice.lora import write_adapter
from demo_voice.lora_training import LoraTrainer
from demo_voice.schedule import Clock
from demo_voice.train_data import SpeechData, TrainingData
from demo_voice.train_spelling import Spelling
from demo_voice.vae import AudioVae
from voxcpm_core.checkpoint.load import load_config
from voxcpm_core.errors import CheckpointError

LEARNING_RATE = 2e-3
ROWS_PER_BATCH, SEQUENCES_PER_POOL = 4096, 256


def train_lora(
    checkpoint: Path, out: Path, corpus: Path, minutes: float, seed: int, device: torch.device, num_workers: int
) -> None:
    """Write the adapter's folder. Raises CheckpointError for a checkpoint that lacks weights or has others."""
    config = load_config(checkpoint)
    tensors, vae_tensors = read_main(checkpoint, config), read_vae(checkpoint, config)
    if tensors is None or vae_tensors is None:
        raise CheckpointError(f"{checkpoint}: model.safetensors or audiovae.safetensors is missing")
    torch.manual_seed(seed)
    vae = AudioVae(config.vae).to(device).requires_grad_(False)
    vae.load_state_dict(vae_tensors)
    data = TrainingData(corpus, device)
    data.wait()
    speaker = read_shard(shard_paths(corpus)[0])[0].speaker
    speech = SpeechData(data, vae, Spelling(checkpoint), speaker)
    trainer = LoraTrainer(config, tensors, device, LEARNING_RATE, seed)
    settings = BatchSettings(config.patch_size, ROWS_PER_BATCH, SEQUENCES_PER_POOL)
    batches = speech.batches(settings, seed, num_workers, pin_memory=device.type == "cuda")
    try:
        trainer.run(Clock(minutes), batches, lambda: speech.frames)
    finally:
        write_adapter(out, trainer.adapter, checkpoint.name)


def main(arguments: Sequence[str]) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m demo_voice.train_lora", description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("out", type=Path, help="the adapter's folder")
    parser.add_argument("--corpus", type=Path, required=True, help="shards of one speaker")
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args(arguments)
    device = torch.device(given.device)
    num_workers = 4 if device.type == "cuda" else 0
    train_lora(given.checkpoint, given.out, given.corpus, given.minutes, given.seed, device, num_workers)
    print(f"{given.out}: {folder_bytes(given.out)} bytes", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
