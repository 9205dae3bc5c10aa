"""The benchmark's count of operations is that of the network in torch."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

pytest.importorskip("triton", reason="Triton has no build for this machine")

from benchmarks.vae_costs import decode_costs
from tests.oracle.vae import official_vae
from tests.vae.architectures import RELEASED
from voxcpm_core.vae import VaeDecoder


def test_operations_of_a_patch():
    config = RELEASED["2"]
    decoder = VaeDecoder.from_tensors(config, dict(official_vae(config, "meta").state_dict()), "meta")
    with FlopCounterMode(display=False) as counter:
        decoder.decode(torch.empty(2, 64, 4, device="meta"), decoder.new_state(2))
    costs = decode_costs(config, 2, 4, decoder.state_size, fused_channels=128)
    # torch's transposed convolution also makes what is cut off: a frame of state before the four.
    assert costs.operations < counter.get_total_flops() < 1.3 * costs.operations
    unfused = decode_costs(config, 2, 4, decoder.state_size, fused_channels=0)
    assert unfused.operations == costs.operations
    assert unfused.fp16_operations < costs.fp16_operations
    assert unfused.limit_ms(4800, 989) > costs.limit_ms(4800, 989)
