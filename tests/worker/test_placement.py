"""Which GPU a worker sees."""

import dataclasses
from pathlib import Path

import pytest

from tests.worker.streams import CONFIG
from voxcpm_core.worker import WorkerHandle
from voxcpm_core.worker.placement import Placement, place


@pytest.mark.parametrize(
    ("configured", "kind", "device_id", "visible", "expected"),
    [
        # configured, device id and CUDA_VISIBLE_DEVICES as the worker gets them
        ("", "GPU", "1", None, ("", "0", "1")),
        ("", "GPU", "1", "4,7", ("", "0", "7")),
        ("", "GPU", "0", "GPU-a, MIG-b", ("", "0", "GPU-a")),
        ("cuda:1", "GPU", "0", "4,7", ("cuda:0", "0", "7")),
        ("cuda", "MODEL", "0", None, ("cuda:0", "0", "0")),
        ("cuda:3", "CPU", "0", None, ("cuda:0", "0", "3")),
        ("cuda:2", "MODEL", "0", "4,7", ("cuda:2", "0", "4,7")),
        ("cpu", "GPU", "1", "4,7", ("cpu", "1", "4,7")),
        ("", "CPU", "0", None, ("", "0", None)),
        ("", "MODEL", "0", "4,7", ("", "0", "4,7")),
        ("cuda:x", "GPU", "0", None, ("cuda:x", "0", None)),
    ],
)
def test_the_worker_sees_its_gpu_alone(configured, kind, device_id, visible, expected):
    environ = {"PATH": "/bin", **({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})}
    device = place(configured, Placement(kind, device_id), environ)
    got = device.configured, device.placement.device_id, device.environ.get("CUDA_VISIBLE_DEVICES")
    assert got == expected
    assert device.placement.kind == kind
    assert device.environ["PATH"] == "/bin"


def test_the_process_of_an_instance_on_a_gpu_is_told_that_gpu_alone(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "no-such-gpu,nor-this")  # so that it runs on the CPU wherever it is
    handle = WorkerHandle(dataclasses.replace(CONFIG, device=""), Placement("GPU", "1"))
    try:
        environ = Path(f"/proc/{handle.stats().worker_pid}/environ").read_bytes().split(b"\0")
    finally:
        handle.close()
    assert [each for each in environ if each.startswith(b"CUDA_VISIBLE_DEVICES=")] == [b"CUDA_VISIBLE_DEVICES=nor-this"]
