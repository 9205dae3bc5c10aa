"""The tensor table against published counts."""

from __future__ import annotations

import math

import pytest

from voxcpm_core.checkpoint.releases import RELEASES, release_config
from voxcpm_core.checkpoint.shapes import main_shapes, vae_shapes
from voxcpm_core.checkpoint.tiny import noise_config, tiny_config
from voxcpm_core.config import ModelConfig


def _num_parameters(shapes: dict[str, tuple[int, ...]]) -> int:
    return sum(math.prod(shape) for shape in shapes.values())


@pytest.mark.parametrize(
    ("generation", "num_main", "num_vae", "millions", "vae_millions"),
    [("0.5", 377, 243, 652.3, 75.4), ("1.5", 467, 299, 801.7, 86.5), ("2", 577, 312, 2290.0, 94.2)],
)
def test_counts_equal_the_releases(generation, num_main, num_vae, millions, vae_millions):
    config = ModelConfig.from_json(release_config(generation))
    main, vae = main_shapes(config), vae_shapes(config.vae)
    assert (len(main), len(vae)) == (num_main, num_vae)
    assert _num_parameters(main) / 1e6 == pytest.approx(millions, abs=0.05)
    assert _num_parameters(vae) / 1e6 == pytest.approx(vae_millions, abs=0.15)


def test_the_published_byte_counts_of_the_first_release():
    config = ModelConfig.from_json(release_config("0.5"))
    assert 2 * _num_parameters(main_shapes(config)) == 1_304_574_592
    assert 4 * _num_parameters(vae_shapes(config.vae)) == 301_420_808


@pytest.mark.parametrize("generation", RELEASES)
def test_tiny_models_have_the_structure_of_their_release(generation):
    tiny = ModelConfig.from_json(tiny_config(generation))
    release = ModelConfig.from_json(release_config(generation))
    for name in ("architecture", "patch_size", "fusion", "mu_tokens", "supports_reference"):
        assert getattr(tiny, name) == getattr(release, name)
    assert (tiny.residual_lm.rope is None) == (release.residual_lm.rope is None)
    assert tiny.max_length == 1024


def test_the_noise_model_has_the_real_rates():
    config, release = ModelConfig.from_json(noise_config()), ModelConfig.from_json(release_config("2"))
    assert config.vae.hop_length == release.vae.hop_length == 640
    assert config.vae.upsampling == release.vae.upsampling == 1920
    assert config.samples_per_patch / config.vae.sample_rate == pytest.approx(0.16)
    assert config.max_length == config.base_lm.rope.max_positions == 4096
