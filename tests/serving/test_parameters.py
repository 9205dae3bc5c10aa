"""Unknown request parameters are refused by name; Triton's own and allowed ones pass."""

import json

import pytest

from voxcpm_core.errors import ErrorCode, RequestError
from voxcpm_core.serving.parameters import allowed_names, reject_unknown


def test_no_parameters_pass():
    reject_unknown("", frozenset())
    reject_unknown("{}", frozenset())


@pytest.mark.parametrize(
    "name",
    ["id", "priority", "timeout", "headers", "binary_data_output", "sequence_id", "sequence_start", "triton_enable_x"],
)
def test_tritons_own_pass(name: str):
    reject_unknown(json.dumps({name: 1}), frozenset())


def test_a_misspelt_input_is_named():
    with pytest.raises(RequestError, match="unknown parameter 'cfg_vale'") as caught:
        reject_unknown(json.dumps({"cfg_vale": 2.0, "id": "x"}), frozenset())
    assert caught.value.code is ErrorCode.INVALID_PARAMETER


def test_a_long_name_is_cut():
    with pytest.raises(RequestError) as caught:
        reject_unknown(json.dumps({"x" * 1000: 1}), frozenset())
    assert len(str(caught.value)) < 80


def test_the_setting_lets_names_through():
    allowed = allowed_names(" trace_id, tenant ,")
    assert allowed == {"trace_id", "tenant"}
    reject_unknown(json.dumps({"tenant": "a", "trace_id": "b"}), allowed)
    with pytest.raises(RequestError, match="tenant2"):
        reject_unknown(json.dumps({"tenant2": "a"}), allowed)
