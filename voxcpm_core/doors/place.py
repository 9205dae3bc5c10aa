"""Which instances of a Triton model share an engine, and which of them has it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class InstancePlace:
    """One instance: those that differ in `index` alone share an engine, which belongs to index 0."""

    model: str
    version: str
    group: str  # of config.pbtxt's instance_group
    device: str  # "KIND_GPU 0"
    index: int
    count: int  # of the instances that share an engine

    @property
    def has_engine(self) -> bool:
        return self.index == 0

    @classmethod
    def of(cls, args: Mapping[str, str]) -> InstancePlace:
        """`args` are those of Triton's `initialize`. Triton calls the instances of a group NAME_0, NAME_1, ..."""
        group, index, count = args["model_instance_name"], 0, 1
        for each in json.loads(args["model_config"]).get("instance_group", []):
            if each["count"] > 1 and group.startswith(f"{each['name']}_"):
                number = group.removeprefix(f"{each['name']}_")
                if number.isdecimal() and int(number) < each["count"]:
                    group, index, count = each["name"], int(number), each["count"]
                    break
        device = f"{args['model_instance_kind']} {args['model_instance_device_id']}"
        return cls(args["model_name"], args["model_version"], group, device, index, count)

    def claim(self) -> dict[str, Any]:
        """What a door says of itself to the instances it finds."""
        return {"version": self.version, "group": self.group, "device": self.device, "index": self.index}

    def is_shared_with(self, claim: Mapping[str, Any]) -> bool:
        """Whether a door that makes this claim belongs to this instance's engine."""
        own = self.claim() | {"index": claim.get("index")}
        return claim.get("index") in range(1, self.count) and own == {name: claim.get(name) for name in own}
