"""What stands in deploy/ and in the Dockerfile."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DASHBOARD = DEPLOY / "grafana" / "voxcpm.json"


@functools.cache
def documents(file: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(file.read_text(encoding="utf-8")))


def all_objects() -> list[dict[str, Any]]:
    """Every Kubernetes object, without the files of Kustomize and of the adapter's chart."""
    return [
        each for file in sorted(DEPLOY.rglob("*.yaml")) for each in documents(file)
        if "metadata" in each
    ]


def one(kind: str) -> dict[str, Any]:
    """The only object of a kind."""
    (found,) = [each for each in all_objects() if each["kind"] == kind]
    return found


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = one("Deployment")["spec"]["template"]["spec"]
    return spec


def container() -> dict[str, Any]:
    (only,) = pod()["containers"]
    return dict(only)


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's, continued lines joined, without comments."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


def instruction(word: str) -> str:
    """The last one of its kind, which is that of the image."""
    return [rest for each, rest in instructions() if each == word][-1]


def json_command(word: str) -> list[str]:
    text = instruction(word)
    command: list[str] = json.loads(text[text.index("[") :])
    return command
