"""What the language models are asked beside the patch itself, so that they learn soon where in the text they are."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from demo_voice.phones import PHONES
from voxcpm_core.config import ModelConfig


class Guesses(torch.nn.Module):
    """Heads that are no part of a checkpoint: a guess of the next patch, and the phone of each of its frames."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.patch = torch.nn.Linear(config.mu_size, config.patch_size * config.feat_dim)
        self.phones = torch.nn.Linear(config.mu_size, config.patch_size * len(PHONES))

    def reset_parameters(self) -> None:
        self.patch.reset_parameters()
        self.phones.reset_parameters()

    def errors(self, mu: Tensor, patches: Tensor, phones: Tensor) -> tuple[Tensor, Tensor]:
        """mu: [M, mu_size]; patches: [M, P, C]; phones: int64 [M, P].

        Returns squared errors and cross entropies, means over each patch. # [M], [M]
        """
        guessed = F.mse_loss(self.patch(mu).float(), patches.flatten(1), reduction="none")
        logits = self.phones(mu).float().view(-1, len(PHONES))
        told = F.cross_entropy(logits, phones.flatten(), reduction="none")
        return guessed.mean(dim=1), told.view(phones.shape).mean(dim=1)
