"""requirements.lock, which the image installs: whole, with hashes, and of the versions that the tests run with."""

from __future__ import annotations

import importlib.metadata
import re
import sys

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.deploy.manifests import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

IMAGE = {"python_version": "3.12", "python_full_version": "3.12.3", "sys_platform": "linux", "extra": ""}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def locked() -> dict[str, tuple[Requirement, list[str]]]:
    """Pins and hashes by name."""
    text = re.sub(r"#.*\n", "", (ROOT / "requirements.lock").read_text())
    entries = [entry.split() for entry in text.replace("\\\n", " ").splitlines()]
    return {canonicalize_name(Requirement(pin).name): (Requirement(pin), hashes) for pin, *hashes in entries}


LOCKED = locked()


def needed_by(lines: list[str]) -> list[Requirement]:
    """What the image's Python needs of these."""
    needed = map(Requirement, lines)
    return [each for each in needed if each.marker is None or each.marker.evaluate(IMAGE)]


def assert_locked(requirement: Requirement) -> None:
    assert canonicalize_name(requirement.name) in LOCKED, f"{requirement} is new: make lock"
    (specifier,) = LOCKED[canonicalize_name(requirement.name)][0].specifier
    assert requirement.specifier.contains(specifier.version), f"{requirement} has changed: make lock"


def test_every_pin_has_hashes():
    assert len(LOCKED) > 60
    for pin, hashes in LOCKED.values():
        assert [each.operator for each in pin.specifier] == ["=="]
        assert hashes
        assert all(re.fullmatch("--hash=sha256:[0-9a-f]{64}", each) for each in hashes)


def test_versions_are_those_that_the_tests_run_with():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pinned = {canonicalize_name(each.name): each for each in needed_by(lines)}
    shared = LOCKED.keys() & pinned.keys()
    assert {"grpcio", "numpy", "tokenizers", "torch", "tritonclient"} <= shared
    for name in shared:
        assert LOCKED[name][0].specifier == pinned[name].specifier, f"{name}: make lock"


def test_it_holds_what_the_package_and_tracing_need_and_what_builds_it():
    project = PROJECT["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["tracing"]]
    for requirement in [*needed, *PROJECT["build-system"]["requires"]]:
        assert_locked(Requirement(requirement))


def test_it_holds_what_its_packages_need():
    """As far as the builds that are installed here say: not what a torch with CUDA needs besides."""
    known = 0
    for name, (pin, _) in LOCKED.items():
        try:
            package = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            assert name.startswith(("cuda-", "nvidia-")) or name == "triton", f"{name}: who needs it?"
            continue
        if pin.specifier.contains(package.version):  # an older Python has other versions
            known += 1
            for requirement in needed_by(package.requires or []):
                assert_locked(requirement)
    assert known > 20
