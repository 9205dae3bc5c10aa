"""Make the demo voice: train an AudioVAE on a corpus, refine its decoder, then train the model on its latents.

Bounded by wall-clock time; the checkpoint folder is written every few minutes and holds whatever was reached when the
run ends, in whatever way. A run goes on from the weights of a folder with --resume; a phase with no minutes leaves its
files alone, so that decoder and model can be trained in one folder at once, on two GPUs.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import torch
from torch import Tensor

from demo_voice.batches import BatchSettings
from demo_voice.export import folder_bytes, read_main, read_vae, write_config, write_main, write_vae
from demo_voice.model_sizes import SIZES, voice_config
from demo_voice.model_training import ModelTrainer
from demo_voice.model_weights import initial_tensors
from demo_voice.schedule import Clock
from demo_voice.speakers import DEFAULT_SPEAKER
from demo_voice.tokenizer import train_tokenizer
from demo_voice.train_data import SpeechData, TrainingData
from demo_voice.train_spelling import Spelling
from demo_voice.vae import AudioVae
from demo_voice.vae_training import VaeSettings, VaeTrainer
from voxcpm_core.config import ModelConfig

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


@dataclass(frozen=True)
class Scale:
    """How large the steps are, for a GPU or for a dry run on a CPU."""

    vae: VaeSettings
    rows_per_batch: int
    sequences_per_pool: int
    learning_rate: float
    num_workers: int


SCALES = {
    "demo": Scale(VaeSettings(32, 32, 8e-4), 8192, 2048, 1e-3, 12),
    "tiny": Scale(VaeSettings(4, 6, 2e-3), 512, 16, 3e-3, 0),
}


class Minutes(NamedTuple):
    """How long each phase may last."""

    vae: float
    decoder: float
    model: float


class Training:
    """One run of the command."""

    def __init__(
        self, out: Path, resume: Path | None, tokenizer: Path | None, size: str, seed: int, device: torch.device
    ) -> None:
        """Writes configuration and tokenizer to `out`; raises ConfigError or CheckpointError for a folder to resume
        from that does not fit."""
        self._out, self._resume, self._seed, self._device = out, resume, seed, device
        self._copies = resume is not None and resume.resolve() != out.resolve()
        self._scale = SCALES[size]
        out.mkdir(parents=True, exist_ok=True)
        _place_tokenizer(out, resume or tokenizer)
        self._spelling = Spelling(out)
        self._config: ModelConfig = write_config(out, voice_config(size, self._spelling.vocab_size))
        torch.manual_seed(seed)

    def run(self, corpus: Path, minutes: Minutes) -> None:
        """All phases; errors end it after what was trained is written."""
        data = TrainingData(corpus, self._device)
        data.wait()
        vae = self._train_vae(data, minutes)
        tensors = self._resume and read_main(self._resume, self._config)
        if not tensors:
            tensors = initial_tensors(self._config, torch.Generator().manual_seed(self._seed))
        elif minutes.model <= 0 and not self._copies:
            return
        write_main(self._out, self._config, tensors)
        if minutes.model > 0:
            self._train_model(SpeechData(data, vae, self._spelling, DEFAULT_SPEAKER.name), tensors, minutes.model)

    def _train_vae(self, data: TrainingData, minutes: Minutes) -> AudioVae:
        vae = AudioVae(self._config.vae).to(self._device)
        stored = self._resume and read_vae(self._resume, self._config)
        if stored:
            vae.load_state_dict(stored)
        if minutes.vae > 0 or not stored:
            self._run_vae_phase(vae, data, minutes.vae, refines=False)
        elif self._copies:
            write_vae(self._out, self._config, stored)
        if minutes.decoder > 0:
            self._run_vae_phase(vae, data, minutes.decoder, refines=True)
        # The latents must be those of the weights as written, which are rounded.
        vae.load_state_dict(read_vae(self._out, self._config) or {})
        return vae.requires_grad_(False)

    def _run_vae_phase(self, vae: AudioVae, data: TrainingData, minutes: float, refines: bool) -> None:
        trainer = VaeTrainer(vae, self._scale.vae, data.clips, refines)
        torch.backends.cudnn.benchmark = True  # all clips have one length; later, every shape is another
        trainer.run(Clock(minutes), lambda: write_vae(self._out, self._config, vae.state_dict()))
        torch.backends.cudnn.benchmark = False

    def _train_model(self, speech: SpeechData, tensors: dict[str, Tensor], minutes: float) -> None:
        scale = self._scale
        trainer = ModelTrainer(self._config, tensors, self._device, scale.learning_rate)
        settings = BatchSettings(self._config.patch_size, scale.rows_per_batch, scale.sequences_per_pool)
        batches = speech.batches(settings, self._seed, scale.num_workers, pin_memory=self._device.type == "cuda")
        trainer.run(
            Clock(minutes),
            batches,
            lambda: speech.frames,
            lambda: write_main(self._out, self._config, trainer.checkpoint_tensors()),
        )


def _place_tokenizer(out: Path, source: Path | None) -> None:
    """Train the tokenizer anew, or copy it from a folder that may be `out` itself."""
    if source is None:
        train_tokenizer(out)
    elif source.resolve() != out.resolve():
        for name in TOKENIZER_FILES:
            shutil.copyfile(source / name, out / name)


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m demo_voice.train", description=__doc__)
    parser.add_argument("out", type=Path, help="the checkpoint folder to write")
    parser.add_argument("--corpus", type=Path, required=True, help="folder of shards, which may still grow")
    parser.add_argument("--vae-minutes", type=float, default=10.0)
    parser.add_argument("--decoder-minutes", type=float, default=6.0)
    parser.add_argument("--model-minutes", type=float, default=20.0)
    parser.add_argument("--resume", type=Path, help="checkpoint folder whose weights to start from; may be OUT")
    parser.add_argument("--tokenizer", type=Path, help="folder whose tokenizer to take, in place of training it")
    parser.add_argument("--size", choices=SIZES, default="demo")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args(arguments)


def _end(signum: int, frame: FrameType | None) -> None:
    sys.exit(f"ended by signal {signum}; what was trained is written")


def main(arguments: Sequence[str]) -> None:
    """The command."""
    given = _arguments(arguments)
    signal.signal(signal.SIGTERM, _end)
    training = Training(
        given.out, given.resume, given.tokenizer, given.size, given.seed, torch.device(given.device)
    )
    training.run(given.corpus, Minutes(given.vae_minutes, given.decoder_minutes, given.model_minutes))
    print(f"{given.out}: {folder_bytes(given.out)} bytes", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
