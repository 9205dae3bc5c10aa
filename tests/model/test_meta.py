"""The model builds and runs on meta tensors with the three release configurations: shapes alone, no memory."""

import pytest
import torch

from voxcpm_core.checkpoint.releases import release_config
from voxcpm_core.checkpoint.shapes import main_shapes
from voxcpm_core.config import ModelConfig
from voxcpm_core.kernels.paged_attention import PagedContext
from voxcpm_core.model.kv_cache import KvCache
from voxcpm_core.model.voxcpm import StreamState, VoxCPMModel

META = torch.device("meta")


@pytest.mark.parametrize("generation", ["0.5", "1.5", "2"])
def test_releases_build_prefill_and_step_on_meta(generation):
    config = ModelConfig.from_json(release_config(generation))
    tensors = {name: torch.empty(shape, device=META) for name, shape in main_shapes(config).items()}
    model = VoxCPMModel.load(config, tensors, META, torch.bfloat16, 256)
    cache = KvCache(config, num_pages=8, page_size=16, device=META, dtype=torch.bfloat16)
    with torch.inference_mode(), torch.device(META):
        ids, audio = torch.zeros(3, 20, dtype=torch.int64), torch.zeros(3, 20, config.base_lm.hidden_size)
        table = torch.zeros(3, 8, dtype=torch.int64)
        context = PagedContext(table, torch.arange(20).expand(3, -1), 20, 16)
        output = model.prefill(ids, audio.to(torch.bfloat16), torch.zeros(3, dtype=torch.int64), cache, context)
        last_patch = torch.zeros(3, config.patch_size, 64, dtype=torch.bfloat16)
        batch = StreamState(output.lm_hidden, output.res_hidden, last_patch)
        noise = torch.zeros(3, config.patch_size, 64, dtype=torch.bfloat16)
        patch = model.generate_patch(batch, noise, torch.zeros(3), 10)
        context = PagedContext(table, torch.zeros(3, 1, dtype=torch.int64), 1, 16)
        output = model.advance(patch, cache, context)
    assert patch.shape == (3, config.patch_size, 64)
    assert output.lm_hidden.shape == output.res_hidden.shape == (3, config.base_lm.hidden_size)
    assert output.stop.shape == (3,)
    assert model.dit.num_evaluations(10) == 9
