"""The complete table of tensors that a checkpoint must hold, by name and shape. No torch here."""

from __future__ import annotations

from voxcpm_core.config import ModelConfig, TransformerConfig, VaeConfig
from voxcpm_core.config.vae import RES_UNIT_DILATIONS, RES_UNIT_KERNEL

Shape = tuple[int, ...]
Shapes = dict[str, Shape]

VAE_BOUNDARIES = "decoder.sr_bin_boundaries"  # the one integer tensor


def main_shapes(config: ModelConfig) -> Shapes:
    """Name to shape of every tensor of `model.safetensors` (everything but the VAE)."""
    hidden, feat = config.base_lm.hidden_size, config.feat_dim
    local, dit = config.local_encoder.hidden_size, config.dit.hidden_size
    estimator = "feat_decoder.estimator"
    shapes: Shapes = {"base_lm.embed_tokens.weight": (config.vocab_size, hidden)}
    shapes |= _stack("base_lm", config.base_lm)
    shapes |= _stack("residual_lm", config.residual_lm)
    shapes["feat_encoder.special_token"] = (1, 1, 1, local)
    shapes |= _linear("feat_encoder.in_proj", local, feat)
    shapes |= _stack("feat_encoder.encoder", config.local_encoder)
    shapes |= _linear(f"{estimator}.in_proj", dit, feat)
    shapes |= _linear(f"{estimator}.cond_proj", dit, feat)
    shapes |= _linear(f"{estimator}.out_proj", feat, dit)
    for mlp in ("time_mlp", "delta_time_mlp"):
        shapes |= _linear(f"{estimator}.{mlp}.linear_1", dit, dit)
        shapes |= _linear(f"{estimator}.{mlp}.linear_2", dit, dit)
    shapes |= _stack(f"{estimator}.decoder", config.dit)
    shapes |= _linear("fsq_layer.in_proj", config.fsq_size, hidden)
    shapes |= _linear("fsq_layer.out_proj", hidden, config.fsq_size)
    shapes |= _linear("enc_to_lm_proj", hidden, local)
    shapes |= _linear("lm_to_dit_proj", dit, hidden)
    shapes |= _linear("res_to_dit_proj", dit, hidden)
    if config.fusion == "concat":
        shapes |= _linear("fusion_concat_proj", hidden, 2 * hidden)
    shapes |= _linear("stop_proj", hidden, hidden)
    shapes["stop_head.weight"] = (2, hidden)
    return shapes


def _linear(name: str, rows: int, columns: int) -> Shapes:
    return {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}


def _stack(prefix: str, config: TransformerConfig) -> Shapes:
    hidden, ffn = config.hidden_size, config.ffn_size
    shapes: Shapes = {}
    for index in range(config.num_layers):
        layer = f"{prefix}.layers.{index}"
        shapes[f"{layer}.self_attn.q_proj.weight"] = (config.q_size, hidden)
        shapes[f"{layer}.self_attn.k_proj.weight"] = (config.kv_size, hidden)
        shapes[f"{layer}.self_attn.v_proj.weight"] = (config.kv_size, hidden)
        shapes[f"{layer}.self_attn.o_proj.weight"] = (hidden, config.q_size)
        shapes[f"{layer}.mlp.gate_proj.weight"] = (ffn, hidden)
        shapes[f"{layer}.mlp.up_proj.weight"] = (ffn, hidden)
        shapes[f"{layer}.mlp.down_proj.weight"] = (hidden, ffn)
        shapes[f"{layer}.input_layernorm.weight"] = (hidden,)
        shapes[f"{layer}.post_attention_layernorm.weight"] = (hidden,)
    shapes[f"{prefix}.norm.weight"] = (hidden,)
    return shapes


def vae_shapes(config: VaeConfig) -> Shapes:
    """Name to shape of every tensor of `audiovae.safetensors`, weight norm not folded."""
    return _vae_encoder(config) | _vae_decoder(config)


def _vae_encoder(config: VaeConfig) -> Shapes:
    width = config.encoder_dim
    shapes = _conv("encoder.block.0", width, 1, 7)
    for index, rate in enumerate(config.encoder_rates, start=1):
        block = f"encoder.block.{index}.block"
        for unit in range(len(RES_UNIT_DILATIONS)):
            shapes |= _res_unit(f"{block}.{unit}", width, config.depthwise)
        shapes[f"{block}.3.alpha"] = (1, width, 1)
        shapes |= _conv(f"{block}.4", 2 * width, width, 2 * rate)
        width *= 2
    shapes |= _conv("encoder.fc_mu", config.latent_dim, width, 3)
    shapes |= _conv("encoder.fc_logvar", config.latent_dim, width, 3)
    return shapes


def _vae_decoder(config: VaeConfig) -> Shapes:
    latent, width = config.latent_dim, config.decoder_dim
    if config.depthwise:
        shapes = _conv("decoder.model.0", latent, 1, 7) | _conv("decoder.model.1", width, latent, 1)
        first = 2
    else:
        shapes = _conv("decoder.model.0", width, latent, 7)
        first = 1
    boundaries = config.sample_rate_boundaries
    if boundaries:
        shapes[VAE_BOUNDARIES] = (len(boundaries),)
    for index, rate in enumerate(config.decoder_rates, start=first):
        block = f"decoder.model.{index}.block"
        shapes[f"{block}.0.alpha"] = (1, width, 1)
        shapes |= _transposed_conv(f"{block}.1", width, width // 2, 2 * rate)
        for unit in range(len(RES_UNIT_DILATIONS)):
            shapes |= _res_unit(f"{block}.{2 + unit}", width // 2, config.depthwise)
        if boundaries:
            for part in ("scale_embed", "bias_embed"):
                shapes[f"decoder.sr_cond_model.{index}.{part}.weight"] = (len(boundaries) + 1, width)
        width //= 2
    last = first + len(config.decoder_rates)
    shapes[f"decoder.model.{last}.alpha"] = (1, width, 1)
    shapes |= _conv(f"decoder.model.{last + 1}", 1, width, 7)
    return shapes


def _conv(name: str, channels: int, channels_per_group: int, kernel: int) -> Shapes:
    return {
        f"{name}.weight_g": (channels, 1, 1),
        f"{name}.weight_v": (channels, channels_per_group, kernel),
        f"{name}.bias": (channels,),
    }


def _transposed_conv(name: str, in_channels: int, out_channels: int, kernel: int) -> Shapes:
    return {
        f"{name}.weight_g": (in_channels, 1, 1),
        f"{name}.weight_v": (in_channels, out_channels, kernel),
        f"{name}.bias": (out_channels,),
    }


def _res_unit(name: str, width: int, depthwise: bool) -> Shapes:
    shapes: Shapes = {f"{name}.block.0.alpha": (1, width, 1), f"{name}.block.2.alpha": (1, width, 1)}
    shapes |= _conv(f"{name}.block.1", width, 1 if depthwise else width, RES_UNIT_KERNEL)
    shapes |= _conv(f"{name}.block.3", width, width, 1)
    return shapes
