"""The largest differences that the parity tests saw, for the report at the end of a run."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

worst: dict[str, float] = {}
num_runs = 0


def assert_close(name: str, ours: npt.ArrayLike, official: npt.ArrayLike, limit: float) -> None:
    """Both arrays have one shape and differ by at most `limit`; the largest difference is kept under `name`."""
    ours, official = np.asarray(ours), np.asarray(official)
    assert ours.shape == official.shape
    difference = float(np.abs(ours - official).max())
    worst[name] = max(worst.get(name, 0.0), difference)
    assert difference <= limit, f"{name} differ by {difference:.1e}"
