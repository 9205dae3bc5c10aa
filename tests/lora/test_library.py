"""Adapters read for an engine: what is refused and how, and what is kept."""

from __future__ import annotations

import gc
import json
import os
from concurrent.futures import Future
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.checkpoint.lora_folder import make_lora
from tests.lora.adapters import add_adapter, ref_of
from voxcpm_core.checkpoint.tiny import tiny_config
from voxcpm_core.config import ModelConfig
from voxcpm_core.errors import RequestError
from voxcpm_core.lora.layout import LoraLayout
from voxcpm_core.lora.library import LoraLibrary

V1, V2 = (ModelConfig.from_json(tiny_config(generation)) for generation in ("0.5", "2"))
WEIGHTS = "lora_weights.safetensors"
CPU = torch.device("cpu")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "loras"


@pytest.fixture
def library(root: Path) -> LoraLibrary:
    make_lora(root / "a", V2, r=4, alpha=6)
    return LoraLibrary(str(root), 16, V2, LoraLayout.of(V2, 16, with_mlp=False), CPU, torch.float32)


def refusal(future: Future) -> str:
    with pytest.raises(RequestError) as caught:
        future.result(10)
    return f"{caught.value.code.value}: {caught.value}"


def test_what_is_said_of_an_adapter(library, root):
    facts = library.check("a").result(10)
    assert (facts.rank, facts.alpha, facts.num_layers) == (4, 6, 4 * 7 + 4)
    make_lora(root / "b", V2, r=4, alpha=12)
    other = library.check("b").result(10)
    assert other.weights_sha256 == facts.weights_sha256
    assert other.digest != facts.digest, "the scale is part of what it is"


def _edit_config(folder: Path, **changes) -> None:
    values = json.loads((folder / "lora_config.json").read_text())
    values["lora_config"] |= changes
    (folder / "lora_config.json").write_text(json.dumps(values))


def _edit_weights(folder: Path, edit) -> None:
    tensors = load_file(folder / WEIGHTS)
    edit(tensors)
    save_file(tensors, folder / WEIGHTS)


def _add_pair(tensors) -> None:
    tensors["base_lm.layers.0.mlp.down_proj.lora_A"] = torch.zeros(4, 96)
    tensors["base_lm.layers.0.mlp.down_proj.lora_B"] = torch.zeros(48, 4)


def _write_code(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    torch.save({"state_dict": os.system}, folder / "lora_weights.ckpt")


SPOILERS = {
    "lora_weights.ckpt: cannot be read by torch.load": _write_code,
    "lora_config.r is 17, at most 16": lambda folder: _edit_config(folder, r=17),
    "lora_config.json: is not JSON": lambda folder: (folder / "lora_config.json").write_text("{"),
    "lora_config.json: cannot be read": lambda folder: (folder / "lora_config.json").unlink(),
    "none of lora_weights": lambda folder: (folder / WEIGHTS).unlink(),
    "truncated": lambda folder: os.truncate(folder / WEIGHTS, 1000),
    "lora_B of shape": lambda folder: _edit_weights(folder, lambda tensors: tensors.pop("enc_to_lm_proj.lora_B")),
    "adapts nothing": lambda folder: _edit_weights(folder, lambda ts: ts.update({"x.lora_A": torch.zeros(4, 4)})),
    "lora_mlp is off": lambda folder: _edit_weights(folder, _add_pair),
    "not finite": lambda folder: _edit_weights(folder, lambda ts: ts["enc_to_lm_proj.lora_B"].fill_(float("nan"))),
}


@pytest.mark.parametrize("expected", SPOILERS)
def test_what_cannot_be_used_is_named_without_a_folder(library, root, expected):
    SPOILERS[expected](root / "a")
    message = refusal(library.check("a"))
    assert message.startswith("INVALID_PARAMETER: path: ")
    assert expected in message
    assert str(root) not in message


def test_an_adapter_of_another_model_is_refused(library, root):
    make_lora(root / "other", V1)
    assert "INVALID_PARAMETER: path: lora_weights.safetensors: tensor" in refusal(library.check("other"))


@pytest.mark.parametrize("path", ["", ".", "..", "../loras/a", "a/../..", "missing", "a/" + WEIGHTS, "out", "inner",
                                  "/etc", "\0", "x" * 5000])  # fmt: skip
def test_no_path_leads_out_of_the_folder_of_adapters(library, root, path):
    make_lora(root.parent / "outside", V2)
    (root / "out").symlink_to(root.parent / "outside")
    (root / "inner").mkdir()
    (root / "inner" / "lora_config.json").symlink_to(root / "a" / "lora_config.json")
    (root / "inner" / WEIGHTS).symlink_to(root.parent / "outside" / WEIGHTS)
    message = refusal(library.check(path))
    assert message.startswith("INVALID_PARAMETER: path: ")
    assert str(root) not in message


def test_a_link_inside_of_the_folder_of_adapters_is_followed(library, root):
    (root / "link").symlink_to(root / "a")
    assert library.check("link").result(10) == library.check("a").result(10)


def test_an_adapter_is_kept_for_as_long_as_somebody_wants_it(library, root):
    ref = ref_of(root, "a")
    loaded = library.get(ref).result(10)
    (root / "a" / WEIGHTS).unlink()
    assert library.get(ref).result(10) is loaded
    del loaded
    gc.collect()
    assert refusal(library.get(ref)).startswith("UNKNOWN_LORA: the files of the adapter 'a' are not those")


def test_files_that_were_changed_are_not_used(library, root):
    ref = ref_of(root, "a")
    add_adapter(root, V2, "a", r=4, alpha=6, seed=9)
    assert "UNKNOWN_LORA" in refusal(library.get(ref))
    assert library.get(ref_of(root, "a")).result(10).digest != ref.digest
