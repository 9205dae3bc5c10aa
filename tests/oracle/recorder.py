"""What happens inside one generation of the official package: recorded by hooks, noise replayed on demand."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor


class Recorder:
    """Lists of per-patch tensors, each [1, ...] and float32, and the prefill the loop was given."""

    def __init__(self, model: Any, noise: Tensor | None) -> None:
        self._model = model
        self._replayed = None if noise is None else iter(noise)
        self.noise: list[Tensor] = []
        self.mu: list[Tensor] = []
        self.cond: list[Tensor] = []
        self.latents: list[Tensor] = []
        self.stop_logits: list[Tensor] = []
        self.prefill: tuple[Tensor, Tensor, Tensor] | None = None  # ids [S], features [S, P, C], audio mask [S]

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Hooks are in place within, and gone after; the only draw of the package is the solver's start noise."""
        decoder, stop_head = self._model.feat_decoder, self._model.stop_head
        hooks = [
            decoder.register_forward_pre_hook(self._before_solver, with_kwargs=True),
            decoder.register_forward_hook(lambda module, args, output: self._keep(self.latents, output)),
            stop_head.register_forward_hook(lambda module, args, output: self._keep(self.stop_logits, output)),
        ]
        real_randn, real_inference = torch.randn, self._model._inference

        def randn(*args: Any, **kwargs: Any) -> Tensor:
            drawn = real_randn(*args, **kwargs)
            if self._replayed is not None:
                drawn = next(self._replayed).reshape(drawn.shape).to(drawn)
            self._keep(self.noise, drawn)
            return drawn

        def inference(text: Tensor, text_mask: Tensor, feat: Tensor, feat_mask: Tensor, **kwargs: Any) -> Any:
            self.prefill = (text[0], feat[0].float(), feat_mask[0])
            return real_inference(text, text_mask, feat, feat_mask, **kwargs)

        try:
            with mock.patch.object(torch, "randn", randn), mock.patch.object(self._model, "_inference", inference):
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def _before_solver(self, module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        self._keep(self.mu, kwargs["mu"])
        self._keep(self.cond, kwargs["cond"])

    @staticmethod
    def _keep(values: list[Tensor], value: Tensor) -> None:
        values.append(value.detach().float().clone())
