"""A cuBLASLt that computes on the CPU: it knows a product by its descriptions alone, column-major as the library's."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from voxcpm_core.kernels import cublaslt
from voxcpm_core.kernels.product_configs import LtConfig

NAMES = {code: dtype for dtype, code in cublaslt.TYPES.items()}


class LtStandIn:
    """Offers `configs`, of which those in `split` sum over K in two."""

    def __init__(self, configs: Sequence[LtConfig], split: Sequence[LtConfig] = ()) -> None:
        self.configs, self.split = list(configs), list(split)
        self.used: list[LtConfig] = []
        self._things: list[Any] = [None]  # by number, which takes a pointer's place

    def _new(self, target: Any, thing: Any) -> int:
        target._obj.value = len(self._things)
        self._things.append(thing)
        return 0

    def cublasLtCreate(self, handle: Any) -> int:
        return self._new(handle, "handle")

    def cublasLtMatmulDescCreate(self, product: Any, sums: int, scales: int) -> int:
        assert (sums, scales) == (cublaslt.COMPUTE_32F, cublaslt.R_32F)
        return self._new(product, {})

    def cublasLtMatmulDescSetAttribute(self, product: Any, which: int, value: Any, size: int) -> int:
        assert size == 4
        self._things[product.value][which] = value._obj.value
        return 0

    def cublasLtMatrixLayoutCreate(self, layout: Any, kind: int, rows: int, columns: int, stride: int) -> int:
        return self._new(layout, SimpleNamespace(dtype=NAMES[kind], rows=rows, columns=columns, stride=stride))

    def cublasLtMatmulPreferenceCreate(self, preference: Any) -> int:
        return self._new(preference, {})

    def cublasLtMatmulPreferenceDestroy(self, preference: Any) -> int:
        return 0

    def cublasLtMatmulAlgoGetHeuristic(self, handle: Any, *arguments: Any) -> int:
        *_, most, offers, count = arguments
        offered = [*self.split, *self.configs][:most]
        for offer, config in zip(offers, offered, strict=False):
            offer.algorithm.data[0], offer.algorithm.data[1] = config.tile, config.custom
            offer.algorithm.data[2] = 2 if config in self.split else 1
        count._obj.value = len(offered)
        return 0 if offered else cublaslt.NOT_SUPPORTED

    def cublasLtMatmulAlgoConfigGetAttribute(
        self, algorithm: Any, which: int, value: Any, size: int, written: Any
    ) -> int:
        names = cublaslt.ALGO_TILE, cublaslt.ALGO_CUSTOM, cublaslt.ALGO_SPLITS
        value._obj.value = algorithm._obj.data[names.index(which)]
        return 0

    def cublasLtMatmul(
        self, handle: Any, product: Any, alpha: Any, a: int, a_layout: Any, b: int, b_layout: Any, beta: Any, c: int,
        c_layout: Any, d: int, d_layout: Any, algorithm: Any, workspace: None, workspace_bytes: int, stream: int,
    ) -> int:
        assert (workspace, workspace_bytes) == (None, 0)
        left, right, out = self._matrix(a, a_layout), self._matrix(b, b_layout), self._matrix(d, d_layout)
        if self._things[product.value].get(cublaslt.DESC_TRANSA) == cublaslt.OP_T:
            left = left.t()
        total = alpha._obj.value * (left.float() @ right.float())
        if beta._obj.value:
            total += beta._obj.value * self._matrix(c, c_layout).float()
        out.copy_(total)
        self.used.append(LtConfig(*algorithm._obj.data[:2]))
        return 0

    def _matrix(self, pointer: int, layout: Any) -> Tensor:
        """What is there, as [rows, columns]."""
        described = self._things[layout.value]
        size = described.columns * described.stride
        memory = (ctypes.c_char * (size * described.dtype.itemsize)).from_address(pointer)
        values = torch.frombuffer(memory, dtype=described.dtype).view(described.columns, described.stride)
        return values[:, : described.rows].t()
