"""Reading typed fields out of a parsed config.json, with errors that name the key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from voxcpm_core.errors import ConfigError, shown


class Fields:
    """One JSON object of a config file. Unlisted keys are tolerated, wrong types are not."""

    def __init__(self, values: object, where: str) -> None:
        if not isinstance(values, Mapping):
            raise ConfigError(f"{where}: expected an object, got {shown(values)}")
        self._values: Mapping[str, Any] = values
        self._where = where

    def _get(self, names: Sequence[str]) -> Any:
        for name in names:
            if self._values.get(name) is not None:
                return self._values[name]
        return None

    def _fail(self, name: str, wanted: str, value: object) -> ConfigError:
        return ConfigError(f"{self._where}.{name}: expected {wanted}, got {shown(value)}")

    def integer(self, *names: str, default: int | None = None, minimum: int = 1) -> int:
        """An integer of at least `minimum`; `names` are accepted spellings, the first is the official one."""
        value = self._get(names)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise self._fail(names[0], f"an integer >= {minimum}", value)
        return value

    def optional_integer(self, *names: str) -> int | None:
        return None if self._get(names) is None else self.integer(*names)

    def number(self, *names: str, default: float | None = None) -> float:
        value = self._get(names)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._fail(names[0], "a number", value)
        return float(value)

    def boolean(self, *names: str, default: bool) -> bool:
        value = self._get(names)
        value = default if value is None else value
        if not isinstance(value, bool):
            raise self._fail(names[0], "true or false", value)
        return value

    def string(self, *names: str, default: str) -> str:
        value = self._get(names)
        value = default if value is None else value
        if not isinstance(value, str):
            raise self._fail(names[0], "a string", value)
        return value

    def integers(self, *names: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        value = self._get(names)
        value = default if value is None else value
        if not isinstance(value, Sequence) or not value or not all(type(v) is int and v >= 1 for v in value):
            raise self._fail(names[0], "a list of integers >= 1", value)
        return tuple(value)

    def numbers(self, *names: str) -> tuple[float, ...]:
        value = self._get(names)
        if not isinstance(value, Sequence) or not all(type(v) in (int, float) for v in value):
            raise self._fail(names[0], "a list of numbers", value)
        return tuple(float(v) for v in value)

    def section(self, name: str, optional: bool = False) -> Fields:
        value = self._get((name,))
        if value is None and optional:
            value = {}
        return Fields(value, f"{self._where}.{name}")

    def is_null(self, name: str) -> bool:
        """Whether the key is there and null, which for some keys differs from being absent."""
        return name in self._values and self._values[name] is None
