"""Phones: read from flite's list, and laid over the frames of what was said."""

from __future__ import annotations

import numpy as np
import pytest

from demo_voice.flite import PATCH_SAMPLES, SAMPLE_RATE_HZ, say_with_phones
from demo_voice.phones import PHONE_FRAME_SAMPLES, PHONES, parse_segments, phones_at
from demo_voice.speakers import SPEAKERS
from tests.demo_voice.needs_flite import needs_flite


def test_a_moment_has_the_phone_that_lasts_until_later() -> None:
    segments = parse_segments("pau:0.2 hh:0.3 ay:0.5")
    found = phones_at(segments, np.array([-1.0, 0.1, 0.25, 0.3, 0.49, 0.5, 9.0]))
    assert [PHONES[number] for number in found] == ["pau", "pau", "hh", "ay", "ay", "pau", "pau"]


def test_an_unknown_phone_is_an_error() -> None:
    with pytest.raises(KeyError):
        parse_segments("pau:0.2 xx:0.3")


@needs_flite
@pytest.mark.parametrize("speaker", SPEAKERS, ids=lambda speaker: speaker.name)
def test_hissing_is_heard_where_the_phones_say_so(speaker) -> None:
    said = say_with_phones("The sea is so salty this season, she said.", speaker, 1.2)
    assert len(said.phones) == len(said.pcm) // PHONE_FRAME_SAMPLES
    assert len(said.pcm) % PATCH_SAMPLES == 0
    frames = said.pcm.reshape(-1, PHONE_FRAME_SAMPLES).astype(np.float64)
    crossings_hz = (np.diff(np.sign(frames), axis=1) != 0).sum(axis=1) * SAMPLE_RATE_HZ / PHONE_FRAME_SAMPLES / 2
    hissing = np.isin(said.phones, [PHONES.index("s"), PHONES.index("sh")])
    voiced = np.isin(said.phones, [PHONES.index("iy"), PHONES.index("ow"), PHONES.index("l")])
    assert np.median(crossings_hz[hissing]) > 3 * np.median(crossings_hz[voiced])
