"""Which instances share an engine."""

import json

import pytest

from voxcpm_core.doors.place import InstancePlace


def args(name: str, *groups: tuple[str, int], kind: str = "KIND_GPU", device: str = "0") -> dict[str, str]:
    config = {"instance_group": [{"name": group, "count": count} for group, count in groups]}
    return {
        "model_name": "voxcpm", "model_version": "1", "model_instance_name": name, "model_instance_kind": kind,
        "model_instance_device_id": device, "model_config": json.dumps(config),
    }


@pytest.mark.parametrize(
    ("name", "groups", "group", "index", "count"),
    [
        ("voxcpm_0_0", [("voxcpm_0", 4)], "voxcpm_0", 0, 4),
        ("voxcpm_0_3", [("voxcpm_0", 4)], "voxcpm_0", 3, 4),
        ("voxcpm_0", [("voxcpm_0", 1)], "voxcpm_0", 0, 1),
        ("b_1", [("a", 4), ("b", 2)], "b", 1, 2),
        ("a_1", [("a", 2), ("a_1", 1)], "a", 1, 2),
        ("voxcpm_1", [("voxcpm_0", 1), ("voxcpm_1", 1)], "voxcpm_1", 0, 1),
        ("unheard_2", [], "unheard_2", 0, 1),
    ],
)
def test_the_name_tells_the_group_and_the_place_in_it(name, groups, group, index, count):
    place = InstancePlace.of(args(name, *groups))
    assert (place.group, place.index, place.count, place.has_engine) == (group, index, count, index == 0)


def test_doors_belong_to_the_engine_of_their_group_and_device():
    group = ("voxcpm_0", 3)
    engine = InstancePlace.of(args("voxcpm_0_0", group))
    assert engine.is_shared_with(InstancePlace.of(args("voxcpm_0_2", group)).claim())
    for stranger in (
        InstancePlace.of(args("voxcpm_0_2", group, device="1")),
        InstancePlace.of(args("voxcpm_0_2", group, kind="KIND_CPU")),
        InstancePlace.of(args("other_2", ("other", 3))),
        InstancePlace.of(args("voxcpm_0_2", group) | {"model_version": "2"}),
        engine,
    ):
        assert not engine.is_shared_with(stranger.claim())
    assert not engine.is_shared_with({})
    assert not engine.is_shared_with(engine.claim() | {"index": 3})
