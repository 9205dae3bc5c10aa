"""How many KV pages a device gets."""

from __future__ import annotations

from voxcpm_core.errors import ConfigError

MIB = 2**20
WORKSPACE_MIB = 1024  # CUDA's own context, and the intermediate results of a step and of a prefill


def free_kv_bytes(
    total_bytes: int, free_bytes: int, weight_bytes: int, planned_bytes: int, utilization: float
) -> int:
    """What is left for KV pages of a GPU's memory once the weights are loaded; may be negative.

    The engine takes `utilization` of the whole, with its weights, workspace and what is planned besides (state and
    graphs), and never what others hold.
    """
    own_share = int(total_bytes * utilization) - weight_bytes
    return min(own_share, free_bytes) - planned_bytes - WORKSPACE_MIB * MIB


def num_kv_pages(budget_bytes: int, page_bytes: int, pages_per_request: int, max_running: int) -> int:
    """As many pages as a budget pays for: at least two full-length requests, at most all slots full."""
    most = max(2, max_running) * pages_per_request
    return min(max(budget_bytes // page_bytes, 2 * pages_per_request), most)


def check_page_size(page_size: int, num_positions: int) -> None:
    """Raise ConfigError for pages that no request could fill: each would take memory that nobody can use."""
    if page_size > num_positions:
        raise ConfigError(
            f"page_size: expected at most {num_positions}, the positions of a request (max_model_len, and what the "
            f"checkpoint was made for), got {page_size}"
        )


def check_share(budget_bytes: int, page_bytes: int, pages_per_request: int, utilization: float) -> None:
    """Raise ConfigError when a GPU's share cannot hold the least number of pages, before CUDA runs out of memory."""
    least_bytes = 2 * pages_per_request * page_bytes
    if budget_bytes < least_bytes:
        raise ConfigError(
            f"gpu_memory_utilization: {utilization:g} leaves {max(0, budget_bytes) // MIB} MiB for KV pages beside "
            f"weights and graphs, and two requests of max_model_len take {-(-least_bytes // MIB)}; raise it, free "
            "memory of the device, or lower max_model_len"
        )
