"""Callers who hardly read, and sends that do not return: nobody else notices, and little is held for them."""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.server.instance import Instance
from tests.server.scraped import Scrape
from tests.server.streams import LONG, GrpcStream, HttpStream, same_sound
from tests.server.wire import call
from tests.server_process import make_server, require_installation
from voxcpm_client.server import TritonServer, find_repository
from voxcpm_core.serving.sender_pool import NUM_THREADS
from voxcpm_core.serving.stream import WINDOW_CHUNKS

pytestmark = pytest.mark.server
NUM_NORMAL = 16
FACTOR = 3  # a shared machine
FACTOR_ALONE = 1.5
SLOW_PATCHES = 100
PATCH_BYTES = 7680 * 4 * 4 // 3  # of the noise voice, as float32 in base64
SLACK_BYTES = 32 << 20
BLOCKING_MODEL = Path(__file__).parents[1] / "fixtures" / "blocking_sends.py"


@dataclass(frozen=True)
class Heard:
    """What a normal reader got, and when."""

    audio: bytes
    times_s: tuple[float, ...]  # of the request, then of each chunk

    @property
    def longest_gap_s(self) -> float:
        return max(b - a for a, b in zip(self.times_s[1:], self.times_s[2:], strict=False))

    @property
    def duration_s(self) -> float:
        return self.times_s[-1] - self.times_s[0]


@pytest.fixture
def instance(triton_server: TritonServer) -> Iterator[Instance]:
    with Instance(triton_server) as instance:
        yield instance


def hear(server: TritonServer, seed: int) -> Heard:
    stream = GrpcStream(server, {**LONG, "max_length": 12, "seed": seed})
    times_s = [time.monotonic()]
    while stream.next_chunk():
        times_s.append(time.monotonic())
    assert stream.errors == []
    stream.leave()
    return Heard(stream.audio, tuple(times_s))


def hear_all(server: TritonServer) -> list[Heard]:
    with ThreadPoolExecutor(NUM_NORMAL) as readers:
        return list(readers.map(lambda seed: hear(server, seed), range(NUM_NORMAL)))


def resident_bytes(server: TritonServer) -> int:
    """Of all processes of the server: tritonserver, its stub, the worker."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[2]) == server.pid:
                found = re.search(r"VmRSS:\s+(\d+) kB", (stat.parent / "status").read_text())
                total += int(found[1]) * 1024 if found else 0
        except (OSError, ProcessLookupError):  # it ended meanwhile
            continue
    return total


def hear_beside_others(instance: Instance, inputs: dict[str, object], count: int) -> list[Heard]:
    """Beside so many other streams, which are two rows more in every step, and are read as they come."""
    others = [GrpcStream(instance.server, inputs) for _ in range(count)]
    readers = [threading.Thread(target=other.finish) for other in others]
    for reader in readers:
        reader.start()
    instance.wait_for(running=count)
    heard = hear_all(instance.server)
    for reader in readers:
        reader.join()
    return heard


@pytest.mark.parametrize("factor", [FACTOR, pytest.param(FACTOR_ALONE, marks=pytest.mark.soak)])
def test_readers_of_a_byte_a_second_change_nothing_for_others(instance: Instance, factor: float):
    server = instance.server
    alone = [hear(server, seed).audio for seed in range(NUM_NORMAL)]
    slow_inputs = {**LONG, "max_length": SLOW_PATCHES, "format": "pcm_f32le"}
    before = hear_beside_others(instance, {**slow_inputs, "encoding": "base64"}, count=2)
    held_before = resident_bytes(server)
    over_http = HttpStream(server, slow_inputs)
    over_grpc = GrpcStream(server, {**slow_inputs, "encoding": "base64"})
    instance.wait_for(running=2)
    stop = threading.Event()

    def read_slowly() -> None:
        while not stop.wait(1.0):
            over_http.read_byte()

    reader = threading.Thread(target=read_slowly)
    reader.start()
    beside = hear_all(server)
    assert instance.status()["running"] == 2, "the slow ones were there all the time"
    for mine, theirs in zip(beside, alone, strict=True):
        assert same_sound(mine.audio, theirs)
    assert max(each.duration_s for each in beside) <= factor * max(each.duration_s for each in before)
    assert max(each.longest_gap_s for each in beside) <= factor * max(each.longest_gap_s for each in before)
    # They are generated to their end, however little is read, and then hold memory alone, and no more than they are.
    instance.wait_until_idle()
    held = resident_bytes(server) - held_before
    assert held <= 2 * 2 * SLOW_PATCHES * PATCH_BYTES + SLACK_BYTES
    stop.set()
    reader.join()
    for slow in (over_http, over_grpc):
        slow.leave()
    assert call(server, max_length=1).errors == []


@pytest.fixture(scope="module")
def blocking_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Instance, Path]]:
    """A server whose sends to requests named `blocked-MODEL-...` wait in that model until a file exists; the file."""
    require_installation(dict(os.environ))
    folder = tmp_path_factory.mktemp("blocking")
    gate = folder / "go on"
    repository = folder / "models"
    for name in ("voxcpm", "audiovae", "mp3_encoder", "voxcpm_mp3"):
        shutil.copytree(find_repository() / name, repository / name)
    for name in ("voxcpm", "mp3_encoder"):
        model = repository / name / "1"
        (model / "model.py").rename(model / "shipped.py")
        shutil.copy(BLOCKING_MODEL, model / "model.py")
    server = make_server(folder / "log", repository=repository, TEST_BLOCKING_FILE=str(gate))
    with server, Instance(server) as instance:
        yield instance, gate


@pytest.fixture
def blocking(blocking_server: tuple[Instance, Path]) -> Iterator[tuple[Instance, Path]]:
    """The file is not there."""
    instance, gate = blocking_server
    gate.unlink(missing_ok=True)
    try:
        yield blocking_server
    finally:
        gate.touch()
        instance.wait_until_idle()


def test_more_blocked_senders_than_the_pool_has_threads_stop_nobody(blocking: tuple[Instance, Path]):
    instance, gate = blocking
    server = instance.server
    before = hear_all(server)
    inputs = {**LONG, "max_length": 20}  # more steps than outputs fit in the memory shared with the worker
    num_prefills = instance.status()["num_prefills"]
    seeds = range(NUM_THREADS + 1)
    blocked = [GrpcStream(server, {**inputs, "seed": seed}, f"blocked-voxcpm-{seed}") for seed in seeds]
    instance.wait_for(num_prefills=num_prefills + len(blocked))
    beside = hear_all(server)
    for mine, theirs in zip(beside, before, strict=True):
        assert same_sound(mine.audio, theirs.audio)
    assert max(each.duration_s for each in beside) <= FACTOR * max(each.duration_s for each in before)
    instance.wait_until_idle()
    assert all(stream.num_chunks == 0 for stream in blocked)
    gate.touch()
    for seed, stream in enumerate(blocked):
        stream.finish()
        assert stream.errors == []
        alone = GrpcStream(server, {**inputs, "seed": seed})
        alone.finish()
        assert same_sound(stream.audio, alone.audio), "nothing was lost, and in order"


def settled(value: Callable[[], float], during_s: float = 1.0) -> float:
    """What it is once it has stopped growing."""
    before, now = 0.0, value()
    while not now or now != before:
        time.sleep(during_s)
        before, now = now, value()
    return now


def test_a_slow_step_of_the_ensemble_holds_back_those_before_it(blocking: tuple[Instance, Path]):
    """The engine goes on to its end, as for a slow reader; what it has made waits there, and not in Triton."""
    instance, gate = blocking
    server = instance.server
    inputs = {**LONG, "max_length": 60, "seed": 3}
    alone = GrpcStream(server, {**inputs, "format": "mp3"})
    alone.finish()
    num_patches = instance.status()["num_patches"]
    slow = GrpcStream(server, inputs, "blocked-mp3_encoder-", model="voxcpm_mp3")
    instance.wait(lambda now: now["num_patches"] >= num_patches + 60)
    decoded = settled(lambda: Scrape(server).value("nv_inference_exec_count", model="audiovae"))
    assert 0 < decoded <= WINDOW_CHUNKS
    assert call(server, max_length=1).errors == [], "nobody else waits"
    assert slow.num_chunks == 0
    gate.touch()
    slow.finish()
    assert slow.errors == []
    assert slow.audio == alone.audio
    assert Scrape(server).value("nv_inference_exec_count", model="audiovae") > decoded
