"""Which device an instance takes."""

import pytest

from voxcpm_core.worker.device import choose_device


@pytest.mark.parametrize(
    ("configured", "kind", "has_cuda", "device"),
    [
        ("cpu", "GPU", True, "cpu"),
        ("cuda:3", "CPU", True, "cuda:3"),
        ("", "GPU", True, "cuda:1"),
        ("", "GPU", False, "cpu"),
        ("", "CPU", True, "cpu"),
        ("", "MODEL", True, "cuda:0"),
        ("", "MODEL", False, "cpu"),
    ],
)
def test_choice(configured: str, kind: str, has_cuda: bool, device: str):
    assert choose_device(configured, kind, "1", lambda: has_cuda).device == device


def test_only_a_gpu_that_torch_does_not_see_is_warned_of():
    assert "CUDA" in choose_device("", "GPU", "0", lambda: False).warning
    assert choose_device("", "GPU", "0", lambda: True).warning == ""
    assert choose_device("", "CPU", "0", lambda: False).warning == ""
    assert choose_device("", "MODEL", "0", lambda: False).warning == ""
