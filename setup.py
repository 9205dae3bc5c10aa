"""Puts model_repository/ into the wheel as shared data; everything else stands in pyproject.toml."""

from pathlib import Path

from setuptools import setup

REPOSITORY = Path("model_repository")
SHARE = Path("share/voxcpm-triton")


def repository_files() -> list[tuple[str, list[str]]]:
    """(target folder, files) for every folder of the model repository."""
    folders: dict[str, list[str]] = {}
    for file in sorted(REPOSITORY.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            folders.setdefault(str(SHARE / file.parent), []).append(str(file))
    return list(folders.items())


setup(data_files=repository_files())
