"""A step of the model with each stack as one kernel, against torch; interpreted where there is no GPU."""

from __future__ import annotations

import pytest
import torch

from voxcpm_core.checkpoint.load import load_config
from voxcpm_core.checkpoint.random_init import make_checkpoint
from voxcpm_core.checkpoint.read import read_tensors
from voxcpm_core.kernels.layer_ops import TorchLayerOps
from voxcpm_core.kernels.paged_attention import PagedContext
from voxcpm_core.kernels.stack_plan import StackPlan
from voxcpm_core.model.kv_cache import KvCache
from voxcpm_core.model.voxcpm import StreamState, VoxCPMModel

triton_layer_ops = pytest.importorskip(
    "voxcpm_core.kernels.triton_layer_ops", reason="Triton has no build for this machine"
)

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PLAN = StackPlan(32, 64, (128, 1), (64, 1), (128, 1), (64, 1), num_warps=4, num_stages=2)
NUM_PAGES, PAGE_SIZE, POSITION = 4, 16, 37


def step(model: VoxCPMModel) -> tuple[torch.Tensor, ...]:
    """A patch in two Euler steps, of which one is evaluated, and what its stream goes on with; the cache is random."""
    config, generator = model.config, torch.Generator().manual_seed(1)

    def randn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(DEVICE)

    cache = KvCache(config, NUM_PAGES, PAGE_SIZE, DEVICE, torch.float32)
    cache.pages.copy_(randn(*cache.pages.shape))
    table = torch.arange(NUM_PAGES, device=DEVICE).unsqueeze(0)
    context = PagedContext(table, torch.tensor([[POSITION]], device=DEVICE), POSITION + 1, PAGE_SIZE)
    patch_shape, hidden = (1, config.patch_size, config.feat_dim), config.base_lm.hidden_size
    state = StreamState(randn(1, hidden), randn(1, hidden), randn(*patch_shape))
    patch = model.generate_patch(state, randn(*patch_shape), torch.full((1,), 2.0, device=DEVICE), 2)
    output = model.advance(patch, cache, context)
    return patch, output.lm_hidden, output.res_hidden, cache.pages


@torch.inference_mode()
def test_a_step_equals_that_in_torch(tmp_path):
    make_checkpoint(tmp_path / "m", size="tiny", generation="2", seed=0, dtype="float32")
    config = load_config(tmp_path / "m")
    launched = []

    def plans(shape, num_rows):
        launched.append(shape.num_tokens)
        return PLAN

    expected, found = (
        step(VoxCPMModel.load(config, read_tensors(tmp_path / "m", config), DEVICE, torch.float32, 64, ops))
        for ops in (TorchLayerOps(), triton_layer_ops.TritonLayerOps(DEVICE, plans=plans))
    )
    assert launched == [config.mu_tokens + 1 + 2 * config.patch_size, config.patch_size + 1, 0, 0]
    for name, one, other in zip(("patch", "lm_hidden", "res_hidden", "pages"), found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5, msg=lambda text, name=name: f"{name}: {text}")
