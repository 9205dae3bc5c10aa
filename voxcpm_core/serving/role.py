"""What an instance of the Triton model is: the one with the engine, or a door to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from voxcpm_core.arenas import bound_arenas
from voxcpm_core.doors.place import InstancePlace


class Role(Protocol):
    """What Triton calls."""

    @property
    def is_ready(self) -> bool:
        """Whether a request that comes now would be taken. Quick, and never raises."""
        ...

    def execute(self, requests: Iterable[Any]) -> None: ...

    def close(self) -> None: ...


def start(args: Mapping[str, str], pb_utils: Any, environ: Mapping[str, str]) -> Role:
    """`args` are those of Triton's `initialize`. Raises ConfigError or CheckpointError with what to change."""
    bound_arenas()
    place = InstancePlace.of(args)
    # Each is imported where it is wanted: a door is small and quickly there.
    if place.has_engine:
        from voxcpm_core.serving import startup

        return startup.start(args, place, pb_utils, environ)
    from voxcpm_core.doors.door import Door

    return Door(place, pb_utils)
