"""Where in the memory of one adapter the A and B of each product lie: the same for all, so that a slot is one copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from voxcpm_core.checkpoint.lora import PROJECTIONS, LoraAdapter
from voxcpm_core.checkpoint.shapes import Shapes, main_shapes
from voxcpm_core.config import ModelConfig
from voxcpm_core.errors import CheckpointError

ALIGNMENT = 128  # values; kernels read whole lines
MIN_RANK = 16  # of the memory: no matrix product of a GPU is smaller
_STACKS = ("base_lm", "residual_lm", "feat_decoder.estimator.decoder")
_ATTENTION = (("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), ("self_attn.o_proj",))
_MLP = (("mlp.gate_proj", "mlp.up_proj"), ("mlp.down_proj",))


@dataclass(frozen=True)
class LoraTarget:
    """One product of the model, of one layer of the checkpoint or of several that the model merges."""

    layers: tuple[str, ...]
    num_in: int
    nums_out: tuple[int, ...]  # of each layer
    a_start: int  # A, [layers * rank, in], begins with this value of a slot
    b_start: int  # and B, [out, rank], with this


@dataclass(frozen=True)
class LoraLayout:
    """All products that adapters may change, each with room for `rank`."""

    rank: int
    targets: Mapping[str, LoraTarget]  # by the first of their layers
    num_values: int  # of one adapter

    @classmethod
    def of(cls, model: ModelConfig, max_rank: int, with_mlp: bool) -> LoraLayout:
        """For adapters up to `max_rank`; those of the feed-forward layers take more than all others together."""
        rank = max(MIN_RANK, 1 << (max_rank - 1).bit_length())
        shapes, targets, end = main_shapes(model), {}, 0
        for layers in _products(shapes, with_mlp):
            nums_out, (num_in, *_) = zip(*(shapes[f"{layer}.weight"] for layer in layers), strict=True)
            b_start = end + _aligned(len(layers) * rank * num_in)
            targets[layers[0]] = LoraTarget(layers, num_in, nums_out, end, b_start)
            end = b_start + _aligned(sum(nums_out) * rank)
        return cls(rank, targets, end)

    def packed(self, adapter: LoraAdapter, dtype: torch.dtype) -> Tensor:
        """An adapter as one slot holds it, zero where it changes nothing, its scale in B. # [num_values]

        Raises CheckpointError for a layer that is not among the targets; its rank must fit.
        """
        memory = torch.zeros(self.num_values, dtype=dtype)
        pairs = dict(adapter.pairs)
        for target in self.targets.values():
            a, b = self.views(memory, target)  # [layers * rank, in], [out, rank]
            for layer, rows, columns in zip(target.layers, a.split(self.rank), b.split(target.nums_out), strict=True):
                pair = pairs.pop(layer, None)
                if pair is not None:
                    rows[: adapter.rank] = pair.a
                    columns[:, : adapter.rank] = pair.b.float() * adapter.scale
        for layer in pairs:
            hint = "; lora_mlp is off" if ".mlp." in layer else ""
            raise CheckpointError(f"{layer} cannot be adapted per request{hint}")
        return memory

    def views(self, memory: Tensor, target: LoraTarget) -> tuple[Tensor, Tensor]:
        """A and B of a target in memory [..., num_values]. # [..., layers * rank, in], [..., out, rank]"""
        num_rows, num_out = len(target.layers) * self.rank, sum(target.nums_out)
        a = memory[..., target.a_start : target.a_start + num_rows * target.num_in]
        b = memory[..., target.b_start : target.b_start + num_out * self.rank]
        return a.unflatten(-1, (num_rows, target.num_in)), b.unflatten(-1, (num_out, self.rank))


def _products(shapes: Shapes, with_mlp: bool) -> Iterator[tuple[str, ...]]:
    merged = _ATTENTION + _MLP if with_mlp else _ATTENTION
    for stack in _STACKS:
        index = 0
        while f"{stack}.layers.{index}.self_attn.q_proj.weight" in shapes:
            yield from (tuple(f"{stack}.layers.{index}.{name}" for name in names) for names in merged)
            index += 1
    yield from ((name,) for name in PROJECTIONS if f"{name}.weight" in shapes)


def _aligned(num_values: int) -> int:
    return -(-num_values // ALIGNMENT) * ALIGNMENT
