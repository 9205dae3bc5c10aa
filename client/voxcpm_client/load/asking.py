"""One request of a load: sent, listened to, measured."""

from __future__ import annotations

import time
from contextlib import aclosing
from dataclasses import dataclass

from tritonclient.grpc import service_pb2

from voxcpm_client.channels import Channels
from voxcpm_client.errors import VoxError
from voxcpm_client.load.outcome import Outcome
from voxcpm_client.reader import StreamReader
from voxcpm_client.request import build_request, limit_queue_time
from voxcpm_client.transport import aread_responses
from voxcpm_client.types import SpeechOptions


@dataclass(frozen=True)
class Script:
    """What the requests of a load say, and to whom. `seed` is that of the first; each next has one more."""

    url: str
    model: str
    timeout_s: float
    texts: tuple[str, ...]
    options: SpeechOptions  # without a seed
    seed: int

    def request(self, index: int) -> service_pb2.ModelInferRequest:
        """The request of that number; the texts come in turn. Raises as `build_request`."""
        text = self.texts[index % len(self.texts)]
        request = build_request(self.model, text, f"bench-{index}", {**self.options, "seed": self.seed + index})
        limit_queue_time(request, self.timeout_s)
        return request


async def ask(channels: Channels, script: Script, index: int, client: int, due_s: float | None = None) -> Outcome:
    """Send request `index` and listen to its end. Cancelling it cancels the request."""
    request = script.request(index)
    reader = StreamReader()
    arrived_s: list[float] = []
    durations_s: list[float] = []
    silent_s = 0.0  # of chunks whose audio an encoder still holds back
    error: VoxError | None = None
    sent_s = time.perf_counter()
    try:
        # Without a limit for gaps, which costs a task for each chunk; the time limit of the whole request holds.
        responses = aread_responses(channels, script.url, request, script.timeout_s, None)
        async with aclosing(responses):
            async for response in responses:
                now_s = time.perf_counter()
                chunk = reader.feed(response)
                if chunk is None:
                    continue
                if not chunk.audio:
                    silent_s += chunk.duration_s
                    continue
                arrived_s.append(now_s)
                durations_s.append(silent_s + chunk.duration_s)
                silent_s = 0.0
        reader.close()
        if durations_s:
            durations_s[-1] += silent_s
    except VoxError as failure:
        error = reader.error or failure
    return Outcome(client, due_s, sent_s, time.perf_counter(), tuple(arrived_s), tuple(durations_s), error)
