"""A checkpoint against `sha256sum`'s own list of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from voxcpm_core.checkpoint.checksums import verify_checksums
from voxcpm_core.errors import CheckpointError, ConfigError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for number, name in enumerate(("audiovae.pth", "config.json", "model.safetensors", "tokenizer.json")):
        (folder / name).write_bytes(bytes([number]) * 3_000_000)
    return folder


@pytest.fixture
def listing(folder: Path, tmp_path: Path) -> Path:
    """In text mode and in binary mode, below a comment."""
    names = sorted(path.name for path in folder.iterdir())
    told = [
        subprocess.run(["sha256sum", *mode, *part], cwd=folder, check=True, capture_output=True, text=True).stdout
        for mode, part in (([], names[::2]), (["--binary"], names[1::2]))
    ]
    path = tmp_path / "SHA256SUMS"
    path.write_text("# of the tests\n\n" + "".join(told))
    return path


def test_a_checkpoint_that_is_what_the_list_says(folder, listing):
    verify_checksums(folder, listing)


def test_one_bit_is_noticed(folder, listing):
    weights = folder / "model.safetensors"
    values = bytearray(weights.read_bytes())
    values[-1] ^= 1
    weights.write_bytes(values)
    with pytest.raises(CheckpointError, match=r"model\.safetensors: its SHA-256 is [0-9a-f]{64}, and [0-9a-f]{64} in "):
        verify_checksums(folder, listing)


def test_weights_that_are_not_listed_are_not_loaded(folder, listing):
    (folder / "adapter.bin").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"adapter\.bin: is not on the list"):
        verify_checksums(folder, listing)


def test_a_listed_file_that_is_gone(folder, listing):
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"config\.json: is on the list of checksums and cannot be read"):
        verify_checksums(folder, listing)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "lists nothing"), ("# nothing\n", "lists nothing"), ("abc  model.safetensors\n", "line 1: expected 64"),
        (f"{'a' * 64}  ../secret\n", "line 1: expected 64"), ("\0", "line 1: expected 64"),
        (f"{'a' * 64}  a\0b\n", "line 1: expected 64"), (f"{'a' * 64}  a\n" * 20_000, "longer than"),
        (f"{'a' * 64}  x/y\n", "line 1: expected 64 hexadecimal digits and the name of a file in the model's folder"),
        (f"{'a' * 64}  x\n{'A' * 64} *./x\n\n{'b' * 64}  x\n", "line 4: 'x' has another digest further up"),
    ],
)  # fmt: skip
def test_a_list_that_is_none(folder, listing, text, message):
    listing.write_text(text)
    with pytest.raises(ConfigError, match=message):
        verify_checksums(folder, listing)


def test_no_list(folder, tmp_path):
    with pytest.raises(ConfigError, match="checksums: .*none cannot be read"):
        verify_checksums(folder, tmp_path / "none")


def test_the_line_ends_of_other_systems(folder, listing):
    listing.write_bytes(listing.read_bytes().replace(b"\n", b"\r\n"))
    verify_checksums(folder, listing)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("kind", ["directory", "pipe", "device"])
def test_what_has_no_end_is_not_waited_for(folder, listing, kind):
    odd = folder / "config.json"
    odd.unlink()
    {"directory": odd.mkdir, "pipe": lambda: os.mkfifo(odd), "device": lambda: odd.symlink_to("/dev/zero")}[kind]()
    with pytest.raises(CheckpointError, match=r"config\.json: .* cannot be read \(not a regular file\)"):
        verify_checksums(folder, listing)
    with pytest.raises(ConfigError, match=r"config\.json cannot be read: not a regular file"):
        verify_checksums(folder, odd)
