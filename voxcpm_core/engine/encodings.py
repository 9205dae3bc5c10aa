"""Audio that is encoded while streams run: a chunk a step, so that they wait for no more than that."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from voxcpm_core.errors import RequestError
from voxcpm_core.faults import internal_error
from voxcpm_core.runner import Runner
from voxcpm_core.runner.conditions import Encoding
from voxcpm_core.types import FloatArray, PadSide

log = logging.getLogger(__name__)


@dataclass
class Job:
    """Audio of one caller, by the side that is filled up."""

    subject: str  # who it is, for the log
    unknown: Callable[[], Mapping[PadSide, FloatArray]]  # what is to be encoded, asked when its turn comes
    done: Callable[[dict[PadSide, Tensor]], None]  # takes float32 [N, P, C] of each
    fail: Callable[[RequestError], None]
    left: list[tuple[PadSide, FloatArray]] | None = None  # None: its turn has not come
    encoding: Encoding | None = None  # of the first that is left
    encoded: dict[PadSide, Tensor] = field(default_factory=dict)


class EncodingQueue:
    """First come, first encoded."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._jobs: OrderedDict[Hashable, Job] = OrderedDict()

    @property
    def keys(self) -> list[Hashable]:
        return list(self._jobs)

    @property
    def num_streams(self) -> int:
        """Jobs whose keys are those of streams."""
        return sum(isinstance(key, int) for key in self._jobs)

    def add(self, key: Hashable, job: Job) -> None:
        self._jobs[key] = job

    def fail(self, key: Hashable, error: RequestError) -> None:
        """End a job, if there is one with that key."""
        job = self._jobs.pop(key, None)
        if job is not None:
            job.fail(error)

    def advance(self) -> None:
        """Encode a chunk of the first job. An exception ends it, and is raised only when the device is lost."""
        if not self._jobs:
            return
        key, job = next(iter(self._jobs.items()))
        try:
            if self._has_ended(job):
                job.done(job.encoded)
                del self._jobs[key]
        except Exception as error:
            self.fail(key, internal_error(error, job.subject, log.error))
            self._runner.require_device()

    def _has_ended(self, job: Job) -> bool:
        if job.left is None:
            job.left = list(job.unknown().items())
        if job.left:
            pad, waveform = job.left[0]
            if job.encoding is None:
                job.encoding = self._runner.conditions.begin(waveform, pad)
            patches = self._runner.encode_chunk(job.encoding)
            if patches is None:
                return False
            job.encoded[pad] = patches
            job.encoding = None
            del job.left[0]
        return not job.left
