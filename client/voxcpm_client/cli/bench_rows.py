"""The rows of a `bench` by its command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import typer

from voxcpm_client.load.patterns import Arrivals, Clients, Pattern, parse_ramp
from voxcpm_client.load.plan import Limits

T = TypeVar("T", int, float)

_REQUESTS_PER_CLIENT = 4
_LEAST_REQUESTS = 10
_ARRIVALS = 60


def patterns_of(
    clients: int | None, begin_over_s: float, rate: float | None, ramp: str | None, values: Sequence[str]
) -> list[Pattern]:
    """The rows that were asked for. Raises BadParameter, and ValueError for numbers out of range."""
    if (clients is not None) + (rate is not None) + (ramp is not None) != 1:
        raise typer.BadParameter("give one of --clients, --rate and --ramp")
    if ramp is not None:
        if values:
            raise typer.BadParameter(f"--ramp takes one value; {values[0]!r} is one too many")
        return [parse_ramp(ramp)]
    if clients is not None:
        return [Clients(count, begin_over_s) for count in (clients, *(_number(int, value) for value in values))]
    return [Arrivals(each, each) for each in (rate or 0.0, *(_number(float, value) for value in values))]


def _number(kind: Callable[[str], T], value: str) -> T:
    try:
        return kind(value)
    except ValueError:
        raise typer.BadParameter(f"expected another number of clients or rate, got {value!r}") from None


def limits_of(pattern: Pattern, requests: int | None, duration: float | None) -> Limits:
    """When such a row ends, by default after a number of requests. Raises ValueError."""
    if requests is None and duration is None:
        if isinstance(pattern, Clients):
            requests = max(_LEAST_REQUESTS, _REQUESTS_PER_CLIENT * pattern.count)
        elif pattern.is_constant:
            requests = _ARRIVALS
    return Limits(requests, duration)
