"""Programs of a launch that meet at barriers, in Triton's interpreter, which else runs one to its end after another.

Each program has a thread, and one thread runs at a time: until its program waits, when another one's turn has come.
"""

from __future__ import annotations

import inspect
import random
import threading
from typing import Any

import pytest
import triton.language as tl  # the interpreter looks for it in the module of what it runs
from triton.runtime import interpreter

assert tl


class Together:
    """The programs of a grid; those that have not yet arrived at a barrier go on in a random order."""

    def __init__(self, num_programs: int, seed: int) -> None:
        self._random = random.Random(seed)
        self._turns = [threading.Semaphore(0) for _ in range(num_programs)]
        self._main = threading.Semaphore(0)
        self._numbers: dict[int, int] = {}
        self.num_barriers = 0

    def run(self, program: Any) -> None:
        failures: list[BaseException] = []
        running = set(range(len(self._turns)))

        def work(number: int) -> None:
            self._numbers[threading.get_ident()] = number
            self._turns[number].acquire()
            try:
                program()
            except BaseException as failure:
                failures.append(failure)
            running.discard(number)
            self._main.release()

        threads = [threading.Thread(target=work, args=(number,)) for number in running]
        for thread in threads:
            thread.start()
        while running:
            order = sorted(running)
            self._random.shuffle(order)
            for number in order:
                interpreter.interpreter_builder.set_grid_idx(number, 0, 0)
                self._turns[number].release()
                self._main.acquire()
            self.num_barriers += bool(running)
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def meet(self, *unused: object) -> None:
        """In the place of a barrier."""
        number = self._numbers[threading.get_ident()]
        self._main.release()
        self._turns[number].acquire()


def run_together(monkeypatch: pytest.MonkeyPatch, num_programs: int, seed: int) -> Together:
    """Let launches of so many programs go through their barriers together; others are as ever."""
    together = Together(num_programs, seed)
    begin = interpreter.GridExecutor.__init__

    def init(self: Any, fn: Any, arg_names: Any, grid: Any, *rest: Any) -> None:
        begin(self, fn, arg_names, grid, *rest)
        if grid != (num_programs,):
            return

        def last_runs_all(**arguments: Any) -> None:
            if interpreter.interpreter_builder.grid_idx[0] == num_programs - 1:
                together.run(lambda: fn(**arguments))

        last_runs_all.__signature__ = inspect.signature(fn)  # type: ignore[attr-defined]
        self.fn = last_runs_all

    monkeypatch.setattr(interpreter.GridExecutor, "__init__", init)
    return together
