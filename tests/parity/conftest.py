"""Checkpoints and official models for the parity tests, and their figures in pytest's summary."""

from tests.oracle.fixtures import official_models, tiny_checkpoints
from tests.parity import figures

__all__ = ["official_models", "tiny_checkpoints"]


def pytest_terminal_summary(terminalreporter):
    if figures.worst:
        text = ", ".join(f"{name} {value:.1e}" for name, value in sorted(figures.worst.items()))
        terminalreporter.write_line(f"largest differences to the official package over {figures.num_runs} runs: {text}")
