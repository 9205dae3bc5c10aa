"""Training of an adapter over a frozen voice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from demo_voice.flow import STOP_WEIGHT, Frames, Losses, TensorBatch, losses
from demo_voice.guesses import Guesses
from demo_voice.lora import adapter_parameters, new_adapter
from demo_voice.model_forward import SpeechModel
from demo_voice.model_training import MAX_GRADIENT, MAX_ROWS
from demo_voice.schedule import Clock, Progress, learning_rate_share
from voxcpm_core.checkpoint.lora import merge_lora
from voxcpm_core.config import ModelConfig
from voxcpm_core.model.weights import WeightSource


class LoraTrainer:
    """An adapter and its optimiser."""

    def __init__(
        self, config: ModelConfig, tensors: Mapping[str, Tensor], device: torch.device, learning_rate: float, seed: int
    ) -> None:
        """`tensors`: the voice's main weights, by their names in the checkpoint."""
        self._config, self._device, self._learning_rate = config, device, learning_rate
        self._tensors = {name: tensor.to(device, torch.float32) for name, tensor in tensors.items()}
        self.adapter = new_adapter(config, device, torch.Generator().manual_seed(seed))
        self._parameters = adapter_parameters(self.adapter)
        self._optimizer = torch.optim.AdamW(self._parameters, learning_rate, weight_decay=0.0)
        # Strangers to the checkpoint; their losses are left out.
        self._guesses = Guesses(config).to(device).requires_grad_(False)

    def model(self) -> SpeechModel:
        """The voice with the adapter as it is now merged in; gradients reach the adapter."""
        source = WeightSource(merge_lora(self._tensors, self.adapter), self._device, torch.float32)
        return SpeechModel(self._config, source, MAX_ROWS)

    def step(self, batch: TensorBatch, frames: Frames, rate_share: float) -> Losses:
        """One step on a batch on the device, of all frames there are."""
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._device.type == "cuda"):
            found = losses(self.model(), self._guesses, batch, frames.of(batch))
        self._optimizer.zero_grad(set_to_none=True)
        (found.flow + STOP_WEIGHT * found.stop).backward()
        torch.nn.utils.clip_grad_norm_(self._parameters, MAX_GRADIENT, error_if_nonfinite=True)
        self._optimizer.param_groups[0]["lr"] = self._learning_rate * rate_share
        self._optimizer.step()
        return found

    def run(self, clock: Clock, batches: Iterator[TensorBatch], frames: Callable[[], Frames]) -> None:
        """Train until the clock is up. Raises RuntimeError when a gradient is no number."""
        progress, step = Progress("lora", clock), 0
        while (fraction := clock.fraction) < 1.0:
            batch = TensorBatch(*(part.to(self._device, non_blocking=True) for part in next(batches)))
            found = self.step(batch, frames(), learning_rate_share(fraction))
            step += 1
            if progress.due():
                progress.line(step, {"flow": found.flow.item(), "stop": found.stop.item()})
