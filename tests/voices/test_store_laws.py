"""Any order of adding, removing and using, by two servers on one folder, is that of one dictionary."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.voices.conftest import latents, open_store, voice
from voxcpm_core.errors import RequestError

MAX_VOICES = 3
stores = st.integers(0, 1)
names = st.sampled_from(["a", "../b", "ü", "🎤"])
seeds = st.integers(0, 5)


def code_of(work: Callable[[], object]) -> str | None:
    try:
        work()
    except RequestError as error:
        return error.code.value
    return None


class TwoServers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._scratch = tempfile.TemporaryDirectory()
        folder = Path(self._scratch.name) / "voices"
        self._stores = [open_store(folder, max_voices=MAX_VOICES) for _ in range(2)]
        self._folder = folder
        self._expected: dict[str, int] = {}
        self._held: list[tuple[int, np.ndarray]] = []

    def teardown(self) -> None:
        self._scratch.cleanup()

    @rule(index=stores, name=names, seed=seeds)
    def add(self, index: int, name: str, seed: int) -> None:
        expected = None
        if name in self._expected:
            expected = "ALREADY_EXISTS"
        if len(self._expected) >= MAX_VOICES:
            expected = "TOO_LARGE"
        assert code_of(lambda: self._stores[index].add(voice(name, seed))) == expected
        if expected is None:
            self._expected[name] = seed

    @rule(index=stores, name=names)
    def remove(self, index: int, name: str) -> None:
        known = self._expected.pop(name, None) is not None
        assert code_of(lambda: self._stores[index].remove(name)) == (None if known else "UNKNOWN_VOICE")

    @rule(index=stores, name=names)
    def use(self, index: int, name: str) -> None:
        if name in self._expected:
            self._held.append((self._expected[name], self._stores[index].get(name).prompt))
        else:
            assert code_of(lambda: self._stores[index].get(name)) == "UNKNOWN_VOICE"

    @invariant()
    def what_is_held_stays_and_what_is_listed_is_there(self) -> None:
        for seed, prompt in self._held:
            np.testing.assert_array_equal(prompt, latents(seed))
        for store in self._stores:
            assert [record.name for record in store.records()] == sorted(self._expected)
        kept = list(self._folder.iterdir()) if self._folder.exists() else []
        assert len(kept) == len(self._expected), "nothing temporary stays"


TestTwoServers = TwoServers.TestCase
TestTwoServers.settings = settings(max_examples=15, stateful_step_count=25, deadline=None, derandomize=True)
