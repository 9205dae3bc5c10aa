"""The program of a normaliser's child process: `normalizer_child.py DESCRIPTOR`."""

from __future__ import annotations

from voxcpm_core.children.serve import serve
from voxcpm_core.text.normalize import Normalizer
from voxcpm_core.text.normalizer import unreadable

MEMORY_BYTES = 4 << 30

if __name__ == "__main__":
    normalizer = Normalizer()

    def answer(message: bytes) -> bytes:
        try:
            return normalizer.normalize(message.decode()).encode()
        except Exception:  # whatever the libraries raise for a text that their grammars do not cover
            raise unreadable() from None

    serve(answer, MEMORY_BYTES)
