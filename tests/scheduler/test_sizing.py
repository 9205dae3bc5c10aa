"""KV pages from memory: pure arithmetic, in bytes."""

import pytest

from voxcpm_core.errors import ConfigError
from voxcpm_core.scheduler.sizing import MIB, WORKSPACE_MIB, check_share, free_kv_bytes, num_kv_pages

GIB = 2**30
WORKSPACE = WORKSPACE_MIB * MIB


def test_a_share_of_the_whole_device_pays_for_weights_graphs_workspace_and_pages():
    assert free_kv_bytes(80 * GIB, 74 * GIB, 5 * GIB, 0, 0.5) == 35 * GIB - WORKSPACE
    assert free_kv_bytes(80 * GIB, 74 * GIB, 5 * GIB, 0, 0.25) == 15 * GIB - WORKSPACE
    assert free_kv_bytes(80 * GIB, 74 * GIB, 5 * GIB, 3 * GIB, 0.5) == 32 * GIB - WORKSPACE


def test_what_others_hold_is_left_to_them():
    assert free_kv_bytes(80 * GIB, 10 * GIB, 5 * GIB, 2 * GIB, 0.9) == 8 * GIB - WORKSPACE


def test_two_engines_share_a_device():
    """The second sees what the first took, and still gets its own half."""
    first = 5 * GIB + free_kv_bytes(80 * GIB, 75 * GIB, 5 * GIB, 0, 0.45) + WORKSPACE
    assert first == 36 * GIB
    assert free_kv_bytes(80 * GIB, 80 * GIB - first - 5 * GIB, 5 * GIB, 0, 0.45) == 31 * GIB - WORKSPACE


@pytest.mark.parametrize(
    ("budget_pages", "max_running", "pages"),
    [(1000, 64, 1000), (10_000, 64, 6400), (3, 64, 200), (-5, 64, 200), (1000, 1, 200)],
)
def test_between_two_full_requests_and_all_slots_full(budget_pages, max_running, pages):
    assert num_kv_pages(budget_pages * 4096 + 4095, 4096, pages_per_request=100, max_running=max_running) == pages


def test_a_share_that_is_too_small_is_named_with_what_is_missing():
    check_share(2 * 100 * MIB, MIB, pages_per_request=100, utilization=0.1)
    with pytest.raises(ConfigError, match=r"gpu_memory_utilization: 0.1 leaves 199 MiB .* take 200; raise it"):
        check_share(2 * 100 * MIB - 1, MIB, pages_per_request=100, utilization=0.1)
    with pytest.raises(ConfigError, match="leaves 0 MiB"):
        check_share(-5, MIB, pages_per_request=100, utilization=0.1)
