"""The counter-based noise: the published Philox vectors, its distribution, and what it depends on."""

import pytest
import torch

from voxcpm_core.kernels.noise import philox, philox_normal

KNOWN_ANSWERS = [  # from the Random123 distribution: counter, key, draws
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_philox_gives_the_published_draws(counter, key, expected):
    draws = philox(tuple(map(torch.tensor, counter)), tuple(map(torch.tensor, key)))
    assert tuple(map(int, draws)) == expected


def test_noise_is_standard_normal():
    noise = philox_normal(torch.arange(200), torch.zeros(200, dtype=torch.int64), 256)
    assert noise.dtype == torch.float32
    assert abs(noise.mean().item()) < 0.01
    assert abs(noise.std().item() - 1) < 0.01
    assert abs((noise.abs() < 1).float().mean().item() - 0.6827) < 0.01
    assert noise.abs().max() < 6


def test_a_row_depends_on_its_seed_and_patch_alone():
    seeds = torch.tensor([5, 5, 2**53 - 1, -1, 5 + 2**32])
    patches = torch.tensor([0, 1, 0, 0, 0])
    noise = philox_normal(seeds, patches, 30)
    for row in range(len(seeds)):
        alone = philox_normal(seeds[row : row + 1], patches[row : row + 1], 30)
        assert torch.equal(alone[0], noise[row])
    assert len({tuple(row.tolist()) for row in noise}) == len(seeds)


def test_a_longer_draw_starts_with_the_shorter_one():
    seeds, patches = torch.tensor([7]), torch.tensor([3])
    assert torch.equal(philox_normal(seeds, patches, 13), philox_normal(seeds, patches, 64)[:, :13])
