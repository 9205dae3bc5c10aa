"""The rate of the answer."""

import pytest

from voxcpm_core.audio.resample import output_rate
from voxcpm_core.errors import ErrorCode, RequestError


@pytest.mark.parametrize(
    ("format", "requested", "model_rate", "expected"),
    [
        ("wav", None, 44100, 44100), ("mp3", 8000, 48000, 8000),
        ("opus", None, 44100, 48000), ("opus", None, 16000, 16000),
    ],
)
def test_the_models_own_rate_unless_asked_otherwise(format, requested, model_rate, expected):
    assert output_rate(format, requested, model_rate) == expected


@pytest.mark.parametrize("rate", [0, -1, 7999, 192_001])
def test_rates_out_of_range_are_refused(rate):
    with pytest.raises(RequestError, match="sample_rate: expected 8000 to 192000 Hz") as caught:
        output_rate("wav", rate, 48000)
    assert caught.value.code is ErrorCode.INVALID_PARAMETER
