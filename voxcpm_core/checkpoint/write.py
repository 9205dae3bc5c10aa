"""Writing checkpoint files: tensor by tensor, and never a half-written file under its final name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from voxcpm_core.checkpoint.shapes import Shapes

_SAFETENSORS_DTYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int32: "I32"}


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary sibling that takes the place of `path` on success and vanishes on failure."""
    partial = path.with_name(path.name + ".partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_safetensors(
    path: Path, shapes: Shapes, dtypes: dict[str, torch.dtype], tensors: Iterable[tuple[str, torch.Tensor]]
) -> None:
    """Write `tensors` as they come, so that a model need not fit into memory; their order is that of `shapes`."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in shapes.items():
        end = offset + torch.empty(shape, dtype=dtypes[name], device="meta").nbytes
        header[name] = {"dtype": _SAFETENSORS_DTYPES[dtypes[name]], "shape": shape, "data_offsets": (offset, end)}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the format aligns the data to eight bytes
    with atomic_path(path) as partial, partial.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for expected, (name, tensor) in zip(shapes, tensors, strict=True):
            assert name == expected
            assert tuple(tensor.shape) == shapes[name]
            assert tensor.dtype == dtypes[name]
            file.write(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
