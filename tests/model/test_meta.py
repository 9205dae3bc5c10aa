"""The model builds and runs on meta tensors with the three release configurations: shapes alone, no memory."""

import pytest
import torch

from voxcpm_core.checkpoint.releases import release_config
from voxcpm_core.checkpoint.shapes import main_shapes
from voxcpm_core.config import ModelConfig
from voxcpm_core.kernels.paged_attention import PagedContext
from voxcpm_core.model.kv_cache import KvCache
from voxcpm_core.model.voxcpm import Prefix, StreamState, VoxCPMModel

META = torch.device("meta")


@pytest.mark.parametrize("generation", ["0.5", "1.5", "2"])
def test_releases_build_prefill_and_step_on_meta(generation):
    config = ModelConfig.from_json(release_config(generation))
    tensors = {name: torch.empty(shape, device=META) for name, shape in main_shapes(config).items()}
    model = VoxCPMModel.load(config, tensors, META, torch.bfloat16, 256)
    cache = KvCache(config, num_pages=8, page_size=16, device=META, dtype=torch.bfloat16)
    with torch.inference_mode(), torch.device(META):
        prefix = Prefix(torch.zeros(1, 20, dtype=torch.int64), torch.zeros(0, config.patch_size, 64),
                        torch.zeros(0, dtype=torch.int64), ends_with_audio=False)
        table = torch.zeros(1, 8, dtype=torch.int64)
        state = model.prefill(prefix, cache, PagedContext(table, torch.arange(20).unsqueeze(0), 20, 16))
        batch = StreamState(*(t.expand(3, *t.shape[1:]).to(torch.bfloat16) for t in state))
        noise = torch.zeros(3, config.patch_size, 64, dtype=torch.bfloat16)
        patch = model.generate_patch(batch, noise, torch.zeros(3), 10)
        context = PagedContext(table.expand(3, -1), torch.zeros(3, 1, dtype=torch.int64), 1, 16)
        output = model.advance(patch, cache, context)
    assert patch.shape == (3, config.patch_size, 64)
    assert output.lm_hidden.shape == output.res_hidden.shape == (3, config.base_lm.hidden_size)
    assert output.stop.shape == (3,)
    assert model.dit.num_evaluations(10) == 9
