"""The model as training runs it: all rows of many sequences at once, differentiable.

The stacks, the local encoder and the time embedding are the engine's own; what the engine does row by row over a paged
cache (attention, the next row's state, one patch's velocity) is here for whole batches. A test holds the two equal.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from voxcpm_core.checkpoint.shapes import main_shapes
from voxcpm_core.config import ModelConfig, TransformerConfig
from voxcpm_core.kernels.layer_ops import ALL_TOKENS, LayerOps
from voxcpm_core.kernels.linear import Linear
from voxcpm_core.kernels.lora import Norm
from voxcpm_core.kernels.rope import Rotation, rotated_heads
from voxcpm_core.model import dit
from voxcpm_core.model.local_encoder import LocalEncoder
from voxcpm_core.model.schedule import TimeEmbedding
from voxcpm_core.model.transformer import LocalAttention, Transformer
from voxcpm_core.model.weights import WeightSource


class CausalAttention:
    """Each row attends to itself and what comes before; whatever fills up a sequence stands behind it."""

    def __init__(self, num_positions: int, device: torch.device) -> None:
        self.positions = torch.arange(num_positions, device=device)

    def attend(
        self, ops: LayerOps, layer: int, x: Tensor, norm: Norm, qkv: Linear, config: TransformerConfig,
        rotation: Rotation | None, kept: slice,
    ) -> tuple[Tensor, Tensor]:
        assert kept == ALL_TOKENS
        q, k, v = (part.transpose(1, 2) for part in rotated_heads(qkv(ops.norm(x, *norm)), config, rotation))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return attended.transpose(1, 2).flatten(-2), x


class LmStates(NamedTuple):
    """What conditions the patch after each row."""

    lm_hidden: Tensor  # [B, S, hidden]
    res_hidden: Tensor  # [B, S, hidden]


class SpeechModel:
    """Everything but the AudioVAE, over weights of any source."""

    def __init__(self, config: ModelConfig, source: WeightSource, num_positions: int) -> None:
        """`num_positions`: the longest sequence. Needs a VoxCPM2 configuration."""
        assert config.fusion == "concat"
        assert config.mu_tokens == 2
        self.config = config
        self.device = source.device
        self._embed_tokens = source.tensor("base_lm.embed_tokens.weight")  # [vocab, hidden]
        self._local_encoder = LocalEncoder.load(config, source)
        self._base = Transformer.load(config.base_lm, source, "base_lm", num_positions)
        self._residual = Transformer.load(config.residual_lm, source, "residual_lm", num_positions)
        self._fsq_in, self._fsq_out = source.linear("fsq_layer.in_proj"), source.linear("fsq_layer.out_proj")
        self._fusion = source.linear("fusion_concat_proj")
        self._stop_proj, self._stop_head = source.linear("stop_proj"), source.linear("stop_head", bias=False)
        self._lm_to_dit, self._res_to_dit = source.linear("lm_to_dit_proj"), source.linear("res_to_dit_proj")
        self._in_proj = source.linear(f"{dit.PREFIX}.in_proj")
        self._cond_proj = source.linear(f"{dit.PREFIX}.cond_proj")
        self._out_proj = source.linear(f"{dit.PREFIX}.out_proj")
        self._time_weights = {name: source.tensor(name) for name in main_shapes(config) if "time_mlp." in name}
        num_tokens = config.mu_tokens + 1 + 2 * config.patch_size
        self._dit = Transformer.load(config.dit, source, f"{dit.PREFIX}.decoder", num_tokens)
        self._dit_attention = LocalAttention(num_tokens, source.device)

    def states(self, token_ids: Tensor, patches: Tensor, audio_rows: Tensor) -> LmStates:
        """Both language models over whole sequences.

        token_ids: int64 [B, S], read in text rows; patches: [N, P, C]; audio_rows: int64 [N], their rows in the
        flattened batch, which are distinct, or B * S for patches that stand nowhere.
        """
        text = F.embedding(token_ids, self._embed_tokens)  # [B, S, hidden]
        if self.config.embed_scale != 1.0:
            text = text * self.config.embed_scale
        embedded = self._local_encoder(patches).to(text.dtype)
        num_rows = token_ids.numel()
        audio = text.new_zeros(num_rows + 1, text.shape[-1]).index_copy(0, audio_rows, embedded)
        audio = audio[:num_rows].view_as(text)
        is_audio = torch.zeros(num_rows + 1, dtype=torch.bool, device=self.device)
        is_audio = is_audio.index_fill(0, audio_rows, True)[:num_rows].view(*token_ids.shape, 1)
        attention = CausalAttention(token_ids.shape[1], self.device)
        hidden = self._base(torch.where(is_audio, audio, text), attention)
        hidden = torch.where(is_audio, self._quantize(hidden).to(hidden.dtype), hidden)
        fused = self._fusion(torch.cat((hidden, audio), dim=-1))
        return LmStates(hidden, self._residual(fused, attention))

    def _quantize(self, hidden: Tensor) -> Tensor:
        bounded = torch.tanh(self._fsq_in(hidden)).float()
        rounded = torch.round(bounded * self.config.fsq_scale) / self.config.fsq_scale
        # Rounding has no gradient; the bounded value's stands in for it.
        return self._fsq_out(bounded + (rounded - bounded).detach())

    def stop_logits(self, lm_hidden: Tensor) -> Tensor:
        """[..., hidden] -> [..., 2]; class 1: the patch that `lm_hidden` conditions is the last."""
        return self._stop_head(F.silu(self._stop_proj(lm_hidden)))

    def conditioning(self, lm_hidden: Tensor, res_hidden: Tensor) -> Tensor:
        """mu of the DiT: [..., hidden] twice -> [..., mu_size]."""
        return torch.cat((self._lm_to_dit(lm_hidden), self._res_to_dit(res_hidden)), dim=-1)

    def time_tokens(self, times: Tensor) -> Tensor:
        """times [n], computed in their own dtype as the engine does in the model's -> [n, dit hidden]."""
        # Autocast would compute parts of it more finely than the engine does.
        with torch.autocast(self.device.type, enabled=False):
            source = WeightSource(self._time_weights, self.device, times.dtype)
            return TimeEmbedding(source, dit.PREFIX, self.config.dit.hidden_size)(times)

    def velocity(self, x: Tensor, mu: Tensor, time_tokens: Tensor, previous: Tensor) -> Tensor:
        """x, previous: [n, P, C]; mu: [n, mu_size]; time_tokens: [n, dit hidden] -> [n, P, C]."""
        head = mu.unflatten(-1, (self.config.mu_tokens, self.config.dit.hidden_size))
        tokens = torch.cat((head, time_tokens.unsqueeze(1), self._cond_proj(previous), self._in_proj(x)), dim=1)
        return self._out_proj(self._dit(tokens, self._dit_attention, kept=slice(-self.config.patch_size, None)))
