"""What weights in float8 cost in exactness: `python -m benchmarks.fp8 [MODEL] [--device cuda:0] [--json FILE]`.

Says sentences with the weights as they are, and shows each component with weights in float8 the same inputs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from benchmarks.fp8_errors import relative_errors
from benchmarks.machine import as_line, describe_machine
from demo_voice.held_out import held_out_sentences
from voxcpm_core.checkpoint.opened import OpenedCheckpoint, open_checkpoint
from voxcpm_core.checkpoint.read import read_tensors
from voxcpm_core.config import EngineConfig
from voxcpm_core.dtypes import TORCH_DTYPES
from voxcpm_core.kernels.kernel_set import torch_kernels, triton_kernels
from voxcpm_core.model.voxcpm import VoxCPMModel
from voxcpm_core.prepare import prepare
from voxcpm_core.text.layout import prefill_layout
from voxcpm_core.types import SpeechRequest


def load(checkpoint: OpenedCheckpoint, device: torch.device, dtype: torch.dtype, fp8: bool) -> VoxCPMModel:
    kernels = triton_kernels(device) if device.type == "cuda" else torch_kernels()
    config, tensors = checkpoint.model, read_tensors(checkpoint.folder, checkpoint.model)
    num_positions = EngineConfig().num_positions(config)
    return VoxCPMModel.load(config, tensors, device, dtype, num_positions, kernels.layer_ops, fp8=fp8)


def token_ids(checkpoint: OpenedCheckpoint, text: str, device: torch.device) -> torch.Tensor:
    """The prefix of a text. # int64 [S]"""
    request = prepare(SpeechRequest(text), checkpoint.model, EngineConfig(), checkpoint.tokenizer, lambda: 0)
    return torch.from_numpy(prefill_layout(request.token_ids, 0, 0).ids).to(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="demo", help="checkpoint folder, Hugging Face id or demo")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=TORCH_DTYPES, help="default: the checkpoint's, float32 on the CPU")
    parser.add_argument("--streams", type=int, default=16, help="sentences, said as one batch")
    parser.add_argument("--patches", type=int, default=16, help="of each")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    checkpoint, device = open_checkpoint(arguments.model), torch.device(arguments.device)
    dtype = arguments.dtype or (checkpoint.model.dtype if device.type == "cuda" else "float32")
    models = [load(checkpoint, device, TORCH_DTYPES[dtype], fp8) for fp8 in (False, True)]
    ids = [token_ids(checkpoint, text, device) for text in held_out_sentences()[: arguments.streams]]
    errors = relative_errors(*models, ids, arguments.patches)
    machine = describe_machine()
    print(f"{arguments.model} in {dtype} on {device}, {len(ids)} streams of {arguments.patches} patches")
    print(as_line(machine))
    for name, error in errors.items():
        print(f"{name:<40} {100 * error:.2f} %")
    if arguments.json:
        facts = {"model": arguments.model, "dtype": dtype, "device": str(device), "streams": len(ids)}
        arguments.json.write_text(json.dumps({**machine, **facts, "errors": errors}, indent=1) + "\n")


if __name__ == "__main__":
    main()
