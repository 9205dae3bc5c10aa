"""config.json of the demo voice, and of a tiny twin with which the whole training runs in seconds on a CPU."""

from __future__ import annotations

from voxcpm_core.checkpoint.releases import Json, conditioned_vae, dit_config, lm_config, local_stack

SAMPLE_RATE = 16000
SIZES = ("demo", "tiny")


def voice_config(size: str, vocab_size: int) -> Json:
    """The checkpoint's config.json; `size` is one of SIZES. Raises KeyError for another."""
    return {"demo": _demo, "tiny": _tiny}[size](vocab_size)


def _demo(vocab_size: int) -> Json:
    return _voxcpm2(
        lm={"hidden_size": 256, "intermediate_size": 640, "num_hidden_layers": 5, "vocab_size": vocab_size},
        head_dim=64,
        num_residual_layers=2,
        fsq_size=64,
        encoder=local_stack(256, 512, 4, 2, kv_channels=64),
        dit=local_stack(256, 640, 4, 4, kv_channels=64),
        # 20 ms a latent frame: twice as long ones left a small decoder too much to invent.
        patch_size=8,
        vae={"encoder_dim": 16, "latent_dim": 32, "decoder_dim": 320}
        | {"encoder_rates": [2, 4, 5, 8], "decoder_rates": [8, 5, 4, 2]},
        dtype="bfloat16",
    )


def _tiny(vocab_size: int) -> Json:
    return _voxcpm2(
        lm={"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": vocab_size},
        head_dim=16,
        num_residual_layers=1,
        fsq_size=16,
        encoder=local_stack(32, 64, 2, 1, kv_channels=16),
        dit=local_stack(64, 128, 4, 2, kv_channels=16),
        patch_size=4,
        vae={"encoder_dim": 4, "latent_dim": 8, "decoder_dim": 32}
        | {"encoder_rates": [2, 5, 8, 8], "decoder_rates": [8, 8, 5, 2]},
        dtype="float32",
    )


def _voxcpm2(
    lm: Json, head_dim: int, num_residual_layers: int, fsq_size: int, encoder: Json, dit: Json, patch_size: int,
    vae: Json, dtype: str,
) -> Json:
    # One output rate needs no conditioning on it, so sr_bin_boundaries is null.
    rates: Json = {"out_sample_rate": SAMPLE_RATE, "sr_bin_boundaries": None}
    heads = {"num_attention_heads": 4, "kv_channels": head_dim}
    return {
        "architecture": "voxcpm2",
        "lm_config": lm_config(head_dim=head_dim, max_positions=4096, **heads, **lm),
        "patch_size": patch_size,
        "feat_dim": vae["latent_dim"],
        "residual_lm_num_layers": num_residual_layers,
        "residual_lm_no_rope": True,
        "scalar_quantization_latent_dim": fsq_size,
        "scalar_quantization_scale": 9,
        "encoder_config": encoder,
        "dit_config": dit_config(dit) | {"dit_mean_mode": False},
        "audio_vae_config": conditioned_vae(**rates, **vae),
        "max_length": 4096,
        "device": "cuda",
        "dtype": dtype,
    }
