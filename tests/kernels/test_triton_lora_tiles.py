"""Every token is in one tile, beside others of its own adapter, whatever the batch is."""

from __future__ import annotations

import pytest
import torch

triton_lora_tiles = pytest.importorskip(
    "voxcpm_core.kernels.triton_lora_tiles", reason="Triton has no build for this machine"
)

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CASES = [  # slots, rows, copies, tokens
    (1, [0], 2, 11),
    (4, [3, -1, 0, 3], 2, 11),
    (8, [-1] * 5, 1, 1),
    (8, [i % 9 - 1 for i in range(64)], 2, 11),  # 8 adapters, and some who have none
    (32, [(7 * i) % 33 - 1 for i in range(150)], 1, 1),  # more rows than are looked at together
    (3, [2, 2, 2, 2], 1, 70),
]


@pytest.mark.parametrize(("num_slots", "rows", "num_copies", "num_tokens"), CASES)
def test_tiles(num_slots, rows, num_copies, num_tokens):
    num_sequences = num_copies * len(rows)
    tiles = triton_lora_tiles.make_tiles(torch.tensor(rows, device=DEVICE), num_slots, num_sequences, num_tokens)
    slot_of = torch.tensor(rows * num_copies).repeat_interleave(num_tokens)
    seen = []
    for slot, tokens in zip(tiles.slots.tolist(), tiles.tokens.tolist(), strict=True):
        kept = [token for token in tokens if token >= 0]
        assert tokens == kept + [-1] * (tiles.size - len(kept)), "filled up at the end"
        assert {int(slot_of[token]) for token in kept} == ({slot} if kept else set())
        assert (slot == -2) == (not kept)
        seen += kept
    assert sorted(seen) == list(range(num_sequences * num_tokens))


def test_few_tiles_are_empty():
    """The device alone knows how many there are; 64 streams of 8 adapters fill 24 in the DiT, and one stream one."""
    rows = torch.arange(64, device=DEVICE) % 8
    tiles = triton_lora_tiles.make_tiles(rows, 8, 128, 11)
    assert (tiles.num_tiles, int((tiles.slots >= 0).sum())) == (30, 24)
    assert triton_lora_tiles.make_tiles(rows[:1], 8, 2, 11).num_tiles == 1
