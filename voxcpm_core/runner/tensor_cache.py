"""Device tensors that are kept for when they are wanted again, up to so many bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from torch import Tensor


class TensorCache:
    """The least recently used go first. Whoever puts or gets one must not write to it.

    Everything is made and read on one stream of the device, so what is thrown away may still be read by what was
    launched before.
    """

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes`: 0 keeps nothing."""
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._tensors: OrderedDict[Hashable, Tensor] = OrderedDict()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._tensors

    def get(self, key: Hashable) -> Tensor | None:
        tensor = self._tensors.get(key)
        if tensor is not None:
            self._tensors.move_to_end(key)
        return tensor

    def put(self, key: Hashable, tensor: Tensor) -> None:
        """Keep a tensor that is the whole of its memory; one larger than all there may be is not kept."""
        assert key not in self._tensors, key
        if tensor.nbytes > self.max_bytes:
            return
        self._tensors[key] = tensor
        self.num_bytes += tensor.nbytes
        while self.num_bytes > self.max_bytes:
            _, oldest = self._tensors.popitem(last=False)
            self.num_bytes -= oldest.nbytes

    def clear(self) -> None:
        self._tensors.clear()
        self.num_bytes = 0
