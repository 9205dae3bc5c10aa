"""config.json of tiny models of the three generations, and of a small one with the rates of a release."""

from __future__ import annotations

from voxcpm_core.checkpoint.releases import Json, conditioned_vae, dit_config, lm_config, local_stack

TINY_VOCAB = 512
_HEAD_DIM = 16


def tiny_config(generation: str, dtype: str = "float32") -> Json:
    """A model of generation "0.5", "1.5" or "2" that runs in milliseconds on a CPU, with odd sizes on purpose."""
    return {"0.5": _tiny_0_5, "1.5": _tiny_1_5, "2": _tiny_2}[generation]() | {"dtype": dtype}


def noise_config() -> Json:
    """A tiny VoxCPM2 with the real rates: 160 ms patches, 16 kHz in, 48 kHz out."""
    return _tiny_2() | {
        "feat_dim": 16,
        "audio_vae_config": conditioned_vae(
            encoder_dim=8, encoder_rates=[2, 5, 8, 8], latent_dim=16,
            decoder_dim=128, decoder_rates=[8, 6, 5, 2, 2, 2],
        ),
        "lm_config": _tiny_2()["lm_config"] | {"max_position_embeddings": 4096, "rope_scaling": _rope(4096)},
        "max_length": 4096,
        "dtype": "bfloat16",
    }


def _rope(max_positions: int) -> Json:
    half = _HEAD_DIM // 2
    factors = [1.0 + 0.3 * i * i / half for i in range(half)]
    return {
        "type": "longrope",
        "long_factor": [1.5 * factor for factor in factors],
        "short_factor": factors,
        "original_max_position_embeddings": max_positions,
    }


def _tiny_0_5() -> Json:
    stack = local_stack(32, 48, 2, 2)
    return {
        "architecture": "voxcpm",
        "lm_config": lm_config(
            head_dim=_HEAD_DIM, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
            num_attention_heads=4, vocab_size=TINY_VOCAB, max_positions=1024,
        ) | {"rope_scaling": _rope(1024)},
        "patch_size": 2,
        "feat_dim": 8,
        "residual_lm_num_layers": 2,
        "scalar_quantization_latent_dim": 16,
        "scalar_quantization_scale": 9,
        "encoder_config": stack,
        "dit_config": dit_config(stack),
        "audio_vae_config": {
            "encoder_dim": 4,
            "encoder_rates": [2, 5],
            "latent_dim": 8,
            "decoder_dim": 32,
            "decoder_rates": [5, 2],
            "depthwise": True,
            "sample_rate": 16000,
        },
        "max_length": 1024,
        "device": "cuda",
    }


def _tiny_1_5() -> Json:
    return _tiny_0_5() | {
        "patch_size": 4,
        "residual_lm_num_layers": 3,
        "audio_vae_config": {
            "encoder_dim": 4,
            "encoder_rates": [2, 3, 2],
            "latent_dim": 8,
            "decoder_dim": 32,
            "decoder_rates": [2, 3, 2],
            "depthwise": True,
            "sample_rate": 44100,
        },
    }


def _tiny_2() -> Json:
    # kv_channels makes head_dim independent of hidden / heads, as in VoxCPM2
    stack = local_stack(32, 48, 4, 2, kv_channels=_HEAD_DIM)
    return _tiny_0_5() | {
        "architecture": "voxcpm2",
        "lm_config": _tiny_0_5()["lm_config"] | {"hidden_size": 48, "kv_channels": _HEAD_DIM},
        "patch_size": 4,
        "residual_lm_no_rope": True,
        "encoder_config": stack,
        "dit_config": dit_config(stack) | {"dit_mean_mode": False},
        "audio_vae_config": conditioned_vae(
            encoder_dim=4, encoder_rates=[2, 5], latent_dim=8, decoder_dim=32, decoder_rates=[5, 3, 2],
        ),
    }
