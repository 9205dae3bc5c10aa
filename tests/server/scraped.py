"""What a server's metrics endpoint says."""

from __future__ import annotations

import http.client
import re
import time
from collections.abc import Callable

from voxcpm_client.server import TritonServer

GENEROUS_S = 20.0
POLL_S = 0.05


class Scrape:
    """The metrics at one moment."""

    def __init__(self, server: TritonServer) -> None:
        connection = http.client.HTTPConnection(server.metrics_url, timeout=GENEROUS_S)
        try:
            connection.request("GET", "/metrics")
            self.text = connection.getresponse().read().decode()
        finally:
            connection.close()
        self.samples: list[tuple[str, dict[str, str], float]] = []
        for name, labels, value in re.findall(r"^(\w+)(?:\{(.*)\})? (\S+)$", self.text, re.MULTILINE):
            self.samples.append((name, dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value)))

    def value(self, name: str, **labels: str) -> float:
        """The sum over the series of this name that have these labels, 0 where there are none."""
        return sum(value for each, having, value in self.samples if each == name and labels.items() <= having.items())

    def names(self) -> set[str]:
        return {name for name, _, _ in self.samples}

    def shown(self) -> str:
        lines = re.findall(r"^voxcpm_.*", self.text, re.MULTILINE)
        return "\n".join(line for line in lines if "_bucket" not in line)

    def labels(self, name: str) -> list[dict[str, str]]:
        return [labels for each, labels, _ in self.samples if each == name]


def wait_for_scrape(server: TritonServer, condition: Callable[[Scrape], bool], timeout_s: float = GENEROUS_S) -> Scrape:
    """Scrape until it is so."""
    end_s = time.monotonic() + timeout_s
    while not condition(scrape := Scrape(server)):
        assert time.monotonic() < end_s, f"not so after {timeout_s} s:\n{scrape.shown()}"
        time.sleep(POLL_S)
    return scrape
