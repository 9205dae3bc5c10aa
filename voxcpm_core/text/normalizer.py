"""Text normalisation for who asks for it: optional libraries, in a child process."""

from __future__ import annotations

import importlib.util

from voxcpm_core.children import ChildDied, ChildPool, ChildTooSlow, Departure, stays
from voxcpm_core.errors import ErrorCode, RequestError, invalid_parameter

LIBRARIES = ("inflect", "regex", "wetext")
LIMIT_S = 20.0  # a thousand tokens of the worst kind take half of it
# typeguard, which inflect uses, rewrites every function at import unless Python optimises: 6 s instead of 0.4.
_COMMAND = ("-O", "-m", "voxcpm_core.text.normalizer_child")


def require_normalizer() -> None:
    """Raise INVALID_PARAMETER when a library is missing."""
    missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        names = ", ".join(missing)
        raise invalid_parameter(f"normalize needs {names} on the server: pip install 'voxcpm-triton[normalize]'")


def unreadable() -> RequestError:
    """The error of a text that the libraries cannot take."""
    return RequestError(ErrorCode.INVALID_TEXT, "the text cannot be normalised; send it with normalize false")


class TextNormalizer:
    """Thread-safe; one text at a time. Its process starts with the first one."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._pool = ChildPool(_COMMAND, 1, limit_s)

    @property
    def pids(self) -> tuple[int, ...]:
        """Of the child process, if it lives."""
        return self._pool.pids

    def normalize(self, text: str, departure: Departure = stays) -> str:
        """A text, its whitespace cleaned, as words to speak.

        Raises RequestError: INVALID_TEXT for one that the libraries cannot take or not in time, INVALID_PARAMETER
        where they are not installed, what `departure` gives, NOT_READY once closed.
        """
        require_normalizer()
        try:
            return bytes(self._pool.call(text.encode(), departure)).decode()
        except (UnicodeEncodeError, ChildDied, ChildTooSlow):
            raise unreadable() from None

    def close(self) -> None:
        """End the child process."""
        self._pool.close()
