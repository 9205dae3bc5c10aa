"""The checkpoint's architecture, read from its config.json.

All three generations become one description; what differs between them are values here
(`fusion`, `mu_tokens`, the residual LM's rope), never branches elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from voxcpm_core.config.fields import Fields
from voxcpm_core.config.vae import VaeConfig
from voxcpm_core.errors import ConfigError, shown

DTYPES = {"float32": "float32", "fp32": "float32", "bfloat16": "bfloat16", "bf16": "bfloat16"}


@dataclass(frozen=True)
class RopeConfig:
    """LongRoPE tables; which factor list applies is fixed by the two position limits."""

    theta: float
    factors: tuple[float, ...]  # [head_dim / 2]
    scale: float  # multiplies cos and sin
    max_positions: int


@dataclass(frozen=True)
class TransformerConfig:
    """One of the four MiniCPM-4 stacks."""

    hidden_size: int
    ffn_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    num_layers: int
    norm_eps: float
    rope: RopeConfig | None  # None: no positional encoding
    residual_scale: float = 1.0  # muP: each residual branch is scaled by it

    @property
    def q_size(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.num_kv_heads * self.head_dim


@dataclass(frozen=True)
class ModelConfig:
    """Everything the engine needs to know of a checkpoint."""

    architecture: str  # "voxcpm" or "voxcpm2"
    dtype: str
    vocab_size: int
    embed_scale: float
    patch_size: int  # latent frames per patch
    feat_dim: int
    max_length: int  # LM positions the checkpoint was made for
    fsq_size: int
    fsq_scale: int
    fusion: str  # how audio joins the residual LM's input: "add" or "concat"
    mu_tokens: int  # conditioning tokens of the DiT beside the time token; 0: mu is added to the time token
    base_lm: TransformerConfig
    residual_lm: TransformerConfig
    local_encoder: TransformerConfig
    dit: TransformerConfig
    vae: VaeConfig

    @property
    def supports_reference(self) -> bool:
        """Whether the model knows the reference condition (markers 103 and 104)."""
        return self.architecture == "voxcpm2"

    @property
    def encoder_samples_per_patch(self) -> int:
        return self.patch_size * self.vae.hop_length

    @property
    def samples_per_patch(self) -> int:
        """Output samples of one patch."""
        return self.patch_size * self.vae.upsampling

    @property
    def mu_size(self) -> int:
        """Width of the LM's conditioning vector for the DiT."""
        return max(1, self.mu_tokens) * self.dit.hidden_size

    @property
    def context_patches(self) -> int:
        """Prompt patches that warm the VAE decoder, as the official offline decode has them."""
        return 3 if self.architecture == "voxcpm2" else 2

    @classmethod
    def from_json(cls, values: Any, where: str = "config.json") -> ModelConfig:
        """Parse a config.json; raises ConfigError naming the key, the value and what is allowed."""
        top = Fields(values, where)
        architecture = top.string("architecture", default="voxcpm").lower()
        if architecture not in ("voxcpm", "voxcpm2"):
            raise ConfigError(f"{where}.architecture: expected 'voxcpm' or 'voxcpm2', got {shown(architecture)}")
        v2 = architecture == "voxcpm2"
        dtype = top.string("dtype", default="bfloat16")
        if dtype not in DTYPES:
            raise ConfigError(f"{where}.dtype: expected one of {sorted(DTYPES)}, got {shown(dtype)}")
        if (top if not v2 else top.section("dit_config")).boolean("dit_mean_mode", default=False):
            raise ConfigError(f"{where}: dit_mean_mode is not supported; no released checkpoint uses it")
        lm = top.section("lm_config")
        base = _base_lm(lm)
        num_residual = top.integer("residual_lm_num_layers", default=8 if v2 else 6)
        no_rope = top.boolean("residual_lm_no_rope", default=False)
        residual = replace(base, num_layers=num_residual, rope=None if no_rope else base.rope)
        feat_dim = top.integer("feat_dim", default=64)
        vae = VaeConfig.from_json(top.section("audio_vae_config", optional=True), v2)
        if vae.latent_dim != feat_dim:
            raise ConfigError(f"{where}.feat_dim: {feat_dim} differs from audio_vae_config.latent_dim {vae.latent_dim}")
        return cls(
            architecture=architecture,
            dtype=DTYPES[dtype],
            vocab_size=lm.integer("vocab_size", minimum=105),  # the markers' ids go up to 104
            embed_scale=lm.number("scale_emb", default=1.0) if _use_mup(lm) else 1.0,
            patch_size=top.integer("patch_size", default=4 if v2 else 2),
            feat_dim=feat_dim,
            max_length=top.integer("max_length", default=8192 if v2 else 4096),
            fsq_size=top.integer("scalar_quantization_latent_dim", default=512 if v2 else 256),
            fsq_scale=top.integer("scalar_quantization_scale", default=9),
            fusion="concat" if v2 else "add",
            mu_tokens=2 if v2 else 0,
            base_lm=base,
            residual_lm=replace(residual, residual_scale=_residual_scale(lm, num_residual)),
            local_encoder=_local_stack(top.section("encoder_config"), lm, base),
            dit=_local_stack(top.section("dit_config"), lm, base),
            vae=vae,
        )


def _use_mup(lm: Fields) -> bool:
    return lm.boolean("use_mup", default=True)  # the official parser's default when the key is absent


def _residual_scale(lm: Fields, num_layers: int) -> float:
    return lm.number("scale_depth", default=1.0) / math.sqrt(num_layers) if _use_mup(lm) else 1.0


def _base_lm(lm: Fields) -> TransformerConfig:
    hidden, heads = lm.integer("hidden_size"), lm.integer("num_attention_heads")
    head_dim = _head_dim(lm, hidden, heads, "lm_config")
    num_layers, kv_heads = lm.integer("num_hidden_layers"), lm.integer("num_key_value_heads")
    if heads % kv_heads:
        raise ConfigError(f"lm_config: {heads} heads cannot share {kv_heads} kv heads")
    return TransformerConfig(
        hidden_size=hidden,
        ffn_size=lm.integer("intermediate_size"),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        num_layers=num_layers,
        norm_eps=lm.number("rms_norm_eps"),
        rope=_rope(lm, head_dim),
        residual_scale=_residual_scale(lm, num_layers),
    )


def _head_dim(part: Fields, hidden: int, heads: int, where: str) -> int:
    head_dim = part.optional_integer("kv_channels")
    if head_dim is None and hidden % heads:
        raise ConfigError(f"{where}: hidden size {hidden} does not divide into {heads} heads, and no kv_channels")
    return head_dim or hidden // heads


def _rope(lm: Fields, head_dim: int) -> RopeConfig:
    scaling = lm.section("rope_scaling")
    maximum = lm.integer("max_position_embeddings")
    original = scaling.integer("original_max_position_embeddings", default=maximum, minimum=2)
    factors = scaling.numbers("long_factor" if maximum > original else "short_factor")
    if len(factors) != head_dim // 2:
        raise ConfigError(f"rope_scaling: {len(factors)} factors, but head_dim {head_dim} needs {head_dim // 2}")
    scale = math.sqrt(1 + math.log(maximum / original) / math.log(original))
    return RopeConfig(lm.number("rope_theta"), factors, scale, maximum)


def _local_stack(part: Fields, lm: Fields, base: TransformerConfig) -> TransformerConfig:
    """LocEnc or LocDiT: the LM's config with its own widths. Both known spellings of the keys are accepted."""
    hidden = part.integer("hidden_dim", "hidden_size", default=1024)
    heads = part.integer("num_heads", "num_attention_heads", default=16)
    num_layers = part.integer("num_layers", "num_hidden_layers", default=4)
    head_dim = _head_dim(part, hidden, heads, "local stack")
    if heads % base.num_kv_heads:
        raise ConfigError(f"local stack: {heads} heads cannot share the LM's {base.num_kv_heads} kv heads")
    if head_dim != base.head_dim:
        raise ConfigError(f"local stack: head_dim {head_dim} differs from the LM's {base.head_dim}, whose rope it uses")
    return replace(
        base,
        hidden_size=hidden,
        ffn_size=part.integer("ffn_dim", "intermediate_size", default=4096),
        num_heads=heads,
        num_layers=num_layers,
        residual_scale=_residual_scale(lm, num_layers),
    )
