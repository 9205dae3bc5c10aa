"""Tests of the source synthesiser need it on the machine."""

from __future__ import annotations

import pytest

from demo_voice.flite import FliteError, flite_command


def _is_missing() -> bool:
    try:
        flite_command()
    except FliteError:
        return True
    return False


needs_flite = pytest.mark.skipif(_is_missing(), reason="flite is not installed (Debian package flite, or FLITE)")
