"""What a product must move and compute, and how long a card takes at least."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.card import Card
from voxcpm_core.kernels.product_configs import Shape


class Work(NamedTuple):
    """What a product must move and compute at least."""

    num_bytes: int
    num_flops: int

    def limit_us(self, card: Card) -> float:
        """The time that no kernel on that card can go below."""
        return max(self.num_bytes / card.gb_per_s / 1e3, self.num_flops / card.tf_per_s / 1e6)


def work_of(shape: Shape, num_rows: int) -> Work:
    """Weights, rows and results once each; a residual sum is read too."""
    results = num_rows * shape.num_columns * (2 if shape.op == "linear_add" else 1)
    num_bytes = shape.n * shape.k * shape.weight_itemsize + (num_rows * shape.k + results) * shape.itemsize
    return Work(num_bytes, 2 * num_rows * shape.n * shape.k)
