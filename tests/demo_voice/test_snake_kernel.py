"""The fused snake of the training is the plain one, forwards and backwards."""

from __future__ import annotations

import pytest
import torch

from demo_voice.vae import Snake


@pytest.mark.parametrize("frames", [1, 1024, 1500])
def test_the_fused_snake_is_the_plain_one(frames):
    pytest.importorskip("triton", reason="Triton has no build for this machine")
    from demo_voice.snake_kernel import FusedSnake

    torch.manual_seed(0)
    snake = Snake(6)
    with torch.no_grad():
        snake.alpha += 0.3 * torch.randn(1, 6, 1)
    x, grad = torch.randn(3, 6, frames, requires_grad=True), torch.randn(3, 6, frames)
    results = []
    for out in (snake(x), FusedSnake.apply(x, snake.alpha)):
        results.append((out.detach(), *torch.autograd.grad(out, (x, snake.alpha), grad)))
    for plain, fused in zip(*results, strict=True):
        torch.testing.assert_close(fused, plain, atol=1e-5, rtol=1e-4)
