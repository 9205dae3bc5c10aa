"""The official package as an oracle: the same checkpoint folder, run on the CPU, everything recorded."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile
import torch
from torch import Tensor

from tests.oracle.package import official_module, quiet
from tests.oracle.recorder import Recorder

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True)
class OfficialRun:
    """One generation of n patches; tensors are float32 whatever the model's dtype. S: prefill positions."""

    noise: Tensor  # [n, C, P]
    mu: Tensor  # [n, mu_size]
    cond: Tensor  # [n, C, P]
    latents: Tensor  # [n, C, P]
    stop_logits: Tensor  # [n, 2]
    token_ids: tuple[int, ...]  # of the prompt text and the text, without a marker
    prefill_ids: Tensor  # [S], 0 where there is audio
    prefill_features: Tensor  # [S, P, C], zeros where there is text
    audio_mask: Tensor  # [S], 1 where there is audio
    audio: FloatArray  # [samples], the offline decode


class OfficialModel:
    """The official model of a checkpoint folder, with the LoRA folder `lora` applied when there is one."""

    def __init__(self, folder: Path, lora: Path | None = None) -> None:
        package = official_module("voxcpm")
        is_v2 = json.loads((folder / "config.json").read_text()).get("architecture", "voxcpm") == "voxcpm2"
        lora_config = None
        if lora is not None:
            config_class = official_module("voxcpm.model.voxcpm2" if is_v2 else "voxcpm.model.voxcpm").LoRAConfig
            lora_config = config_class(**json.loads((lora / "lora_config.json").read_text())["lora_config"])
        with quiet(), torch.random.fork_rng(devices=[]):
            self._package: Any = package.VoxCPM(
                str(folder),
                enable_denoiser=False,
                optimize=False,
                device="cpu",
                lora_config=lora_config,
                lora_weights_path=None if lora is None else str(lora),
            )
        self.model: Any = self._package.tts_model
        self.encoder_sample_rate: int = self.model.audio_vae.sample_rate
        self.sample_rate: int = self.model.sample_rate

    def tokenize(self, text: str) -> tuple[int, ...]:
        """Token ids of `text`, without a marker."""
        return tuple(self.model.text_tokenizer(text))

    def generate(
        self,
        text: str,
        prompt_wav: FloatArray | None = None,
        prompt_text: str | None = None,
        reference_wav: FloatArray | None = None,
        steps: int = 10,
        cfg: float = 2.0,
        max_len: int = 4096,
        min_len: int = 2,
        seed: int = 0,
        noise: Tensor | None = None,
    ) -> OfficialRun:
        """Generate offline without retries. Waveforms are mono at the encoder's rate.

        The start noise comes from torch's generator seeded with `seed`, or from `noise` [>= n, C, P] when given.
        """
        recorder = Recorder(self.model, noise)
        with tempfile.TemporaryDirectory() as scratch, quiet(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            with recorder.recording():
                audio = self._package.generate(
                    text,
                    prompt_wav_path=self._write_wav(scratch, "prompt", prompt_wav),
                    prompt_text=prompt_text,
                    reference_wav_path=self._write_wav(scratch, "reference", reference_wav),
                    cfg_value=cfg,
                    inference_timesteps=steps,
                    min_len=min_len,
                    max_len=max_len,
                    retry_badcase=False,
                )
        assert recorder.prefill is not None
        prefill_ids, prefill_features, audio_mask = (track.clone() for track in recorder.prefill)
        text_rows = prefill_ids[audio_mask == 0]
        num_reference_markers = 0 if reference_wav is None else 2
        return OfficialRun(
            noise=torch.cat(recorder.noise),
            mu=torch.cat(recorder.mu),
            cond=torch.cat(recorder.cond),
            latents=torch.cat(recorder.latents),
            stop_logits=torch.cat(recorder.stop_logits),
            token_ids=tuple(text_rows[num_reference_markers:-1].tolist()),
            prefill_ids=prefill_ids,
            prefill_features=prefill_features,
            audio_mask=audio_mask,
            audio=audio,
        )

    def vae_decode(self, latents: Tensor) -> Tensor:
        """[B, C, T] to the offline audio [B, T * upsampling]."""
        with torch.no_grad():
            return self.model.audio_vae.decode(latents).squeeze(1)

    def prompt_latents(self, waveform: FloatArray) -> Tensor:
        """Latents of a prompt [N], as the package pads and encodes it. # [patches, P, C]"""
        return self._condition("audio_feat", "prompt_wav_path", waveform, prompt_text="a")

    def reference_latents(self, waveform: FloatArray) -> Tensor:
        """Latents of a reference [N], as the package pads and encodes it; VoxCPM2 only. # [patches, P, C]"""
        return self._condition("ref_audio_feat", "reference_wav_path", waveform)

    def _condition(self, key: str, argument: str, waveform: FloatArray, **others: str) -> Tensor:
        with tempfile.TemporaryDirectory() as scratch, torch.no_grad():
            cache = self.model.build_prompt_cache(**{argument: self._write_wav(scratch, key, waveform)}, **others)
        return cache[key].clone()

    def _write_wav(self, folder: str, name: str, waveform: FloatArray | None) -> str | None:
        if waveform is None:
            return None
        path = Path(folder) / f"{name}.wav"
        soundfile.write(path, waveform, self.encoder_sample_rate, subtype="FLOAT")
        return str(path)
