"""Chunk sizes grow, and never at the price of an underrun."""

from hypothesis import given
from hypothesis import strategies as st

from voxcpm_core.serving.ramp import CHUNK_PATCHES, SAFETY_PATCHES, ChunkRamp

PATCH_S = 0.16


def send_times(arrivals_s: list[float]) -> list[tuple[int, float]]:
    """The chunks, as (patches, time), of patches that arrive at these times; what is left is not sent."""
    ramp, num_held, chunks = ChunkRamp(PATCH_S), 0, []
    for now_s in arrivals_s:
        num_held += 1
        if ramp.is_due(num_held, now_s):
            ramp.record(num_held, now_s)
            chunks.append((num_held, now_s))
            num_held = 0
    return chunks


def test_a_fast_engine_gives_growing_chunks():
    chunks = send_times([0.001 * i for i in range(20)])
    assert [count for count, _ in chunks] == [1, 1, 2, 4, 4, 4, 4]


def test_an_engine_at_playing_speed_sends_every_patch_at_once():
    chunks = send_times([PATCH_S * 0.9 * i for i in range(12)])
    assert [count for count, _ in chunks] == [1] * 12


def test_a_stall_makes_the_held_patches_leave_with_the_next_one():
    arrivals = [0.0, 0.01, 0.02, 0.03, 0.04, 0.05]  # the last two are held
    chunks = send_times([*arrivals, 2.0])
    assert [count for count, _ in chunks] == [1, 1, 2, 3]


def test_nothing_is_due_when_nothing_is_held():
    ramp = ChunkRamp(PATCH_S)
    ramp.record(1, 0.0)
    assert not ramp.is_due(0, 100.0)


gaps = st.lists(st.floats(0, 1), min_size=1, max_size=60)


@given(gaps)
def test_patches_are_held_only_while_the_listener_has_a_reserve(gaps_s: list[float]):
    arrivals = [sum(gaps_s[: i + 1]) for i in range(len(gaps_s))]
    ramp, num_held, delivered, num_chunks, first_s = ChunkRamp(PATCH_S), 0, 0, 0, None
    for now_s in arrivals:
        num_held += 1
        if not ramp.is_due(num_held, now_s):
            assert first_s is not None
            assert delivered * PATCH_S - (now_s - first_s) >= SAFETY_PATCHES * PATCH_S
            assert num_held < CHUNK_PATCHES[min(num_chunks, len(CHUNK_PATCHES) - 1)]
            continue
        ramp.record(num_held, now_s)
        first_s = now_s if first_s is None else first_s
        delivered, num_held, num_chunks = delivered + num_held, 0, num_chunks + 1


@given(gaps)
def test_chunks_never_exceed_the_ramp(gaps_s: list[float]):
    arrivals = [sum(gaps_s[: i + 1]) for i in range(len(gaps_s))]
    for index, (count, _) in enumerate(send_times(arrivals)):
        assert 1 <= count <= CHUNK_PATCHES[min(index, len(CHUNK_PATCHES) - 1)]
