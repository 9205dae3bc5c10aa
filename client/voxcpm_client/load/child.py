"""A process that makes shares of a load: `python -m voxcpm_client.load.child`, started by `Crew` alone.

Pickled shares come on standard input. On standard output go None when it is ready, then their results. A None on the
input, or its end, stops what runs.
"""

from __future__ import annotations

import pickle
import queue
import sys
import threading
from typing import BinaryIO

from voxcpm_client.load.share import Share, ShareResult, run_share
from voxcpm_client.load.stop import Stop


def main() -> None:
    shares: queue.SimpleQueue[Share | None] = queue.SimpleQueue()
    stop = Stop()
    threading.Thread(target=_read, args=(sys.stdin.buffer, shares, stop), daemon=True).start()
    _tell(None)
    while (share := shares.get()) is not None:
        _tell(run_share(share, stop))


def _tell(message: ShareResult | None) -> None:
    pickle.dump(message, sys.stdout.buffer)
    sys.stdout.buffer.flush()


def _read(source: BinaryIO, shares: queue.SimpleQueue[Share | None], stop: Stop) -> None:
    try:
        while (share := pickle.load(source)) is not None:
            shares.put(share)
    except EOFError:
        pass
    stop.set()
    shares.put(None)


if __name__ == "__main__":
    main()
