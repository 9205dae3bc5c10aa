"""The config.json of the three releases, for checkpoints with random weights in their sizes."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

RELEASES = ("0.5", "1.5", "2")


def release_config(generation: str) -> Json:
    """config.json of VoxCPM-0.5B, VoxCPM1.5 or VoxCPM2; the rope factors are all 1.0."""
    return {"0.5": _voxcpm_0_5, "1.5": _voxcpm_1_5, "2": _voxcpm_2}[generation]()


def lm_config(**values: Any) -> Json:
    """`lm_config` with the values that all releases share; `head_dim` sets the number of rope factors."""
    factors = [1.0] * (values.pop("head_dim") // 2)
    positions = values.pop("max_positions", 32768)
    return {
        "bos_token_id": 1,
        "eos_token_id": 2,
        "max_position_embeddings": positions,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000,
        "rope_scaling": {
            "type": "longrope",
            "long_factor": factors,
            "short_factor": factors,
            "original_max_position_embeddings": positions,
        },
        "use_mup": False,
        "scale_emb": 12,
        "dim_model_base": 256,
        "scale_depth": 1.4,
    } | values


def local_stack(hidden: int, ffn: int, heads: int, layers: int, kv_channels: int | None = None) -> Json:
    """`encoder_config` or the network part of `dit_config`."""
    stack: Json = {"hidden_dim": hidden, "ffn_dim": ffn, "num_heads": heads, "num_layers": layers}
    return stack if kv_channels is None else stack | {"kv_channels": kv_channels}


def dit_config(stack: Json) -> Json:
    cfm = {"sigma_min": 1e-6, "solver": "euler", "t_scheduler": "log-norm", "inference_cfg_rate": 2.0}
    return stack | {"cfm_config": cfm}


def conditioned_vae(**values: Any) -> Json:
    """`audio_vae_config` of VoxCPM2's kind: 16 kHz in, 48 kHz out, conditioned on the output rate."""
    return {
        "depthwise": True,
        "sample_rate": 16000,
        "out_sample_rate": 48000,
        "use_noise_block": False,
        "sr_bin_boundaries": [20000, 30000, 40000],
        "cond_type": "scale_bias",
        "cond_dim": 128,
        "cond_out_layer": False,
    } | values


def _voxcpm_0_5() -> Json:
    stack = local_stack(1024, 4096, 16, 4)
    return {
        "architecture": "voxcpm",
        "lm_config": lm_config(
            head_dim=64, hidden_size=1024, intermediate_size=4096, num_hidden_layers=24,
            num_attention_heads=16, vocab_size=73448,
        ),
        "patch_size": 2,
        "feat_dim": 64,
        "residual_lm_num_layers": 6,
        "scalar_quantization_latent_dim": 256,
        "scalar_quantization_scale": 9,
        "encoder_config": stack,
        "dit_config": dit_config(stack),
        "max_length": 4096,
        "device": "cuda",
        "dtype": "bfloat16",
    }


def _voxcpm_1_5() -> Json:
    stack = local_stack(1024, 4096, 16, 8)
    return _voxcpm_0_5() | {
        "patch_size": 4,
        "residual_lm_num_layers": 8,
        "encoder_config": stack,
        "dit_config": dit_config(stack),
        "audio_vae_config": {
            "encoder_dim": 64,
            "encoder_rates": [2, 3, 6, 7, 7],
            "latent_dim": 64,
            "decoder_dim": 2048,
            "decoder_rates": [7, 7, 6, 3, 2],
            "depthwise": True,
            "sample_rate": 44100,
        },
    }


def _voxcpm_2() -> Json:
    stack = local_stack(1024, 4096, 16, 12, kv_channels=128)
    return {
        "architecture": "voxcpm2",
        "lm_config": lm_config(
            head_dim=128, hidden_size=2048, intermediate_size=6144, num_hidden_layers=28,
            num_attention_heads=16, kv_channels=128, vocab_size=73448,
        ),
        "patch_size": 4,
        "feat_dim": 64,
        "residual_lm_num_layers": 8,
        "residual_lm_no_rope": True,
        "scalar_quantization_latent_dim": 512,
        "scalar_quantization_scale": 9,
        "encoder_config": stack,
        "dit_config": dit_config(stack) | {"dit_mean_mode": False},
        "audio_vae_config": conditioned_vae(
            encoder_dim=128, encoder_rates=[2, 5, 8, 8], latent_dim=64,
            decoder_dim=2048, decoder_rates=[8, 6, 5, 2, 2, 2],
        ),
        "max_length": 8192,
        "device": "cuda",
        "dtype": "bfloat16",
    }
