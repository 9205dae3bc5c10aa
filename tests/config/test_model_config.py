"""config.json: the three generations, both key spellings, tolerance and refusals."""

import copy

import pytest

from voxcpm_core.checkpoint.releases import release_config
from voxcpm_core.checkpoint.tiny import tiny_config
from voxcpm_core.config import ModelConfig
from voxcpm_core.errors import ConfigError


@pytest.mark.parametrize(
    ("generation", "rate", "encoder_rate", "patch_samples", "seconds", "mu_tokens", "fusion", "rope"),
    [
        ("0.5", 16000, 16000, 1280, 0.08, 0, "add", True),
        ("1.5", 44100, 44100, 7056, 0.16, 0, "add", True),
        ("2", 48000, 16000, 7680, 0.16, 2, "concat", False),
    ],
)
def test_releases(generation, rate, encoder_rate, patch_samples, seconds, mu_tokens, fusion, rope):
    config = ModelConfig.from_json(release_config(generation))
    assert (config.vae.sample_rate, config.vae.encoder_sample_rate) == (rate, encoder_rate)
    assert config.samples_per_patch == patch_samples
    assert config.samples_per_patch / rate == pytest.approx(seconds)
    assert (config.mu_tokens, config.fusion) == (mu_tokens, fusion)
    assert (config.residual_lm.rope is not None) == rope
    assert config.supports_reference == (generation == "2")


def test_both_spellings_and_unlisted_keys_are_accepted():
    values = tiny_config("2")
    expected = ModelConfig.from_json(values)
    other = copy.deepcopy(values)
    for section in ("encoder_config", "dit_config"):
        part = other[section]
        part["hidden_size"], part["intermediate_size"] = part.pop("hidden_dim"), part.pop("ffn_dim")
        part["num_attention_heads"], part["num_hidden_layers"] = part.pop("num_heads"), part.pop("num_layers")
        part["mean_mode"] = False
    other["brand_new_key"] = {"x": 1}
    assert ModelConfig.from_json(other) == expected


def test_an_absent_architecture_is_the_first_generation():
    values = tiny_config("0.5")
    del values["architecture"]
    assert ModelConfig.from_json(values).architecture == "voxcpm"


def test_absent_vae_config_takes_the_first_generations_defaults():
    values = tiny_config("0.5")
    del values["audio_vae_config"]
    values["feat_dim"] = 64
    vae = ModelConfig.from_json(values).vae
    assert (vae.decoder_dim, vae.decoder_rates, vae.sample_rate) == (1536, (8, 8, 5, 2), 16000)


@pytest.mark.parametrize(("value", "expected"), [("absent", (20000, 30000, 40000)), (None, ()), ([24000], (24000,))])
def test_sample_rate_boundaries_absent_are_the_default_and_null_turns_them_off(value, expected):
    values = tiny_config("2")
    if value == "absent":
        del values["audio_vae_config"]["sr_bin_boundaries"]
    else:
        values["audio_vae_config"]["sr_bin_boundaries"] = value
    assert ModelConfig.from_json(values).vae.sample_rate_boundaries == expected


def test_mup_scales_follow_the_depth_of_each_stack():
    values = tiny_config("1.5")
    values["lm_config"]["use_mup"] = True
    config = ModelConfig.from_json(values)
    depth = values["lm_config"]["scale_depth"]
    assert config.embed_scale == values["lm_config"]["scale_emb"]
    for stack in (config.base_lm, config.residual_lm, config.local_encoder, config.dit):
        assert stack.residual_scale == pytest.approx(depth / stack.num_layers**0.5)


def _set(values, path, value):
    *parents, last = path.split(".")
    for name in parents:
        values = values[name]
    values[last] = value


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("architecture", "voxcpm3", "architecture: expected 'voxcpm' or 'voxcpm2', got 'voxcpm3'"),
        ("dtype", "int8", "dtype: expected one of"),
        ("lm_config", None, "lm_config: expected an object, got None"),
        ("lm_config.hidden_size", "wide", r"lm_config.hidden_size: expected an integer >= 1, got 'wide'"),
        ("lm_config.num_hidden_layers", True, "num_hidden_layers: expected an integer"),
        ("lm_config.rope_scaling.long_factor", [1.0], "rope_scaling: .*factors"),
        ("feat_dim", 7, "feat_dim: 7 differs from audio_vae_config.latent_dim"),
        ("audio_vae_config.use_noise_block", True, "use_noise_block: only false"),
        ("audio_vae_config.encoder_rates", "2,5", "encoder_rates: expected a list of integers"),
        ("audio_vae_config.encoder_rates", [2, 0], "encoder_rates: expected a list of integers >= 1"),
        ("audio_vae_config.encoder_rates", [], "encoder_rates: expected a list of integers >= 1"),
        ("lm_config.num_key_value_heads", 3, "4 heads cannot share 3 kv heads"),
        ("dit_config.num_heads", 5, "5 heads cannot share the LM's 2 kv heads"),
    ],
)
def test_bad_values_are_named(path, value, message):
    values = tiny_config("2")
    _set(values, path, value)
    if path == "lm_config.rope_scaling.long_factor":
        values["lm_config"]["rope_scaling"]["short_factor"] = value
    with pytest.raises(ConfigError, match=message):
        ModelConfig.from_json(values)
