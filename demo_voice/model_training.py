"""Training of language models, local encoder, DiT and stop head on latents, all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from demo_voice.captured import CapturedStep
from demo_voice.flow import Frames, Losses, TensorBatch, losses
from demo_voice.guesses import Guesses
from demo_voice.model_forward import SpeechModel
from demo_voice.model_weights import TrainableWeights
from demo_voice.schedule import SAVE_INTERVAL_S, Clock, Every, Progress, learning_rate_share
from voxcpm_core.config import ModelConfig

MAX_GRADIENT = 1.0
MAX_EMA_DECAY = 0.999
WEIGHT_DECAY = 0.01
MAX_ROWS = 1024  # of one sequence


class ModelTrainer:
    """The model's weights, their running average and their optimiser."""

    def __init__(
        self, config: ModelConfig, tensors: Mapping[str, Tensor], device: torch.device, learning_rate: float
    ) -> None:
        """`tensors`: the weights to start from, by their names in a checkpoint."""
        self._weights = TrainableWeights(tensors, device)
        self._model = SpeechModel(config, self._weights, MAX_ROWS)
        self._guesses = Guesses(config).to(device)
        self._parameters = [*self._weights.leaves, *self._guesses.parameters()]
        self._learning_rate = learning_rate
        self._rate = torch.tensor(learning_rate, device=device)  # a captured step reads it where it is
        self._device = device
        self._on_cuda = device.type == "cuda"
        self._average = [leaf.detach().clone() for leaf in self._weights.leaves]
        self._good = [leaf.clone() for leaf in self._average]
        self._num_steps = 0
        self._optimizer = self._new_optimizer()
        self._captured: dict[torch.Size, CapturedStep[Losses]] = {}

    def _new_optimizer(self) -> torch.optim.Optimizer:
        matrices = [parameter for parameter in self._parameters if parameter.dim() > 1]
        vectors = [parameter for parameter in self._parameters if parameter.dim() <= 1]
        groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}]
        return torch.optim.AdamW(
            groups, self._rate, (0.9, 0.98), fused=self._on_cuda, foreach=False, capturable=self._on_cuda
        )

    def checkpoint_tensors(self) -> dict[str, Tensor]:
        """The averaged weights of the last moment at which they were known to be good, by their checkpoint names."""
        return self._weights.checkpoint_tensors(self._good)

    def step(self, batch: TensorBatch, frames: Frames, rate_share: float) -> Losses:
        """One step on a batch on the device, of all frames there are."""
        self._rate.fill_(self._learning_rate * rate_share)
        found = self._repeated(batch, frames.of(batch))
        self._num_steps += 1
        decay = min(MAX_EMA_DECAY, self._num_steps / (self._num_steps + 10))
        torch._foreach_lerp_(self._average, [leaf.detach() for leaf in self._weights.leaves], 1.0 - decay)
        return found

    def _repeated(self, batch: TensorBatch, frames: Frames) -> Losses:
        """`_step`, at the least cost."""
        if not self._on_cuda:
            return self._step(*frames, *batch)
        shape = batch.token_ids.shape
        if shape not in self._captured:
            pool = next((step.pool for step in self._captured.values()), None)
            self._captured[shape] = CapturedStep(self._step, *frames, *batch, pool=pool)
        return self._captured[shape](*frames, *batch)

    def _step(self, latents: Tensor, phones: Tensor, *batch: Tensor) -> Losses:
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._on_cuda):
            found = losses(self._model, self._guesses, TensorBatch(*batch), Frames(latents, phones))
        self._optimizer.zero_grad(set_to_none=True)
        found.total().backward()
        torch.nn.utils.clip_grad_norm_(self._parameters, MAX_GRADIENT)
        self._optimizer.step()
        return Losses(*(loss.detach() for loss in found))

    @torch.no_grad()
    def settle(self, found: Losses) -> bool:
        """Whether the loss is a number: then the averages become the good ones, else training goes back to them."""
        if torch.isfinite(found.total()) and all(bool(torch.isfinite(average).all()) for average in self._average):
            torch._foreach_copy_(self._good, self._average)
            return True
        torch._foreach_copy_([leaf.detach() for leaf in self._weights.leaves], self._good)
        torch._foreach_copy_(self._average, self._good)
        self._guesses.reset_parameters()
        for state in self._optimizer.state.values():
            for tensor in state.values():
                tensor.zero_()
        return False

    def run(
        self,
        clock: Clock,
        batches: Iterator[TensorBatch],
        frames: Callable[[], Frames],
        save: Callable[[], None],
        max_steps: int | None = None,
    ) -> dict[str, float]:
        """Train until the clock is up, or for `max_steps`; `save` is called every two minutes and at the end,
        also when an error or a signal ends the training. Returns the last step's losses.
        """
        progress, saving, found, step = Progress("model", clock), Every(SAVE_INTERVAL_S), None, 0
        try:
            while (fraction := clock.fraction) < 1.0 and step != max_steps:
                batch = TensorBatch(*(part.to(self._device, non_blocking=True) for part in next(batches)))
                found = self.step(batch, frames(), learning_rate_share(fraction))
                step += 1
                if progress.due():
                    if not self.settle(found):
                        print("the loss is not a number: back to the last good weights", flush=True)
                    progress.line(step, _numbers(found))
                    if saving.due():
                        save()
            if found is None:
                return {}
            self.settle(found)
            progress.line(step, _numbers(found))
            return _numbers(found)
        finally:
            save()


def _numbers(found: Losses) -> dict[str, float]:
    return {name: float(value) for name, value in found._asdict().items()}
