"""A kernel as it is compiled for a compute capability; no GPU is needed."""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

WARP_SIZE = 32


class Variant(NamedTuple):
    """A kernel, the types of its arguments, and the values of those that are constants.

    PDL and COMPILED need not be among them: the first goes by the capability, and nothing here is interpreted.
    """

    kernel: Any
    types: dict[str, str]
    constants: dict[str, Any]
    options: dict[str, Any] = {}
    # Numbers that are multiples of 16, as the addresses of torch's memory are. Without knowing that, Triton loads rows
    # in pieces and copies nothing ahead into shared memory.
    multiples: tuple[str, ...] = ()

    def shared_bytes(self, capability: int) -> int:
        signature = {name: self.types.get(name, "constexpr") for name in self.kernel.arg_names}
        multiples = {*self.multiples, *(name for name, kind in signature.items() if kind.startswith("*"))}
        attributes = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(signature) if name in multiples}
        usual = {name: value for name, value in (("PDL", capability >= 90), ("COMPILED", True)) if name in signature}
        source = ASTSource(self.kernel, signature, {**usual, **self.constants}, attributes)
        target = GPUTarget("cuda", capability, WARP_SIZE)
        return triton.compile(source, target=target, options=self.options).metadata.shared
