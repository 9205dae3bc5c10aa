"""Laws of the streaming decoder: chunks = whole, rows are independent, a zero row is a fresh stream."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.oracle.vae import official_vae
from voxcpm_core.vae import VaeDecoder

TOLERANCE = {"atol": 3e-6, "rtol": 0}  # of samples in [-1, 1]: convolutions of other shapes round otherwise


def random_latents(batch: int, frames: int, seed: int = 3) -> Tensor:
    return torch.randn(batch, 8, frames, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("sizes", [(1,) * 24, (4,) * 6, (2, 7, 1, 1, 13), (23, 1)], ids=str)
def test_chunks_of_any_size_equal_the_whole(decoder: VaeDecoder, sizes: tuple[int, ...]) -> None:
    latents = random_latents(2, sum(sizes))
    state = decoder.new_state(2)
    chunks = [decoder.decode(chunk, state) for chunk in latents.split(sizes, dim=-1)]
    torch.testing.assert_close(torch.cat(chunks, dim=-1), decoder.decode_offline(latents), **TOLERANCE)


def test_final_state_does_not_depend_on_the_chunks(decoder: VaeDecoder) -> None:
    latents = random_latents(2, 12)
    whole, chunked = decoder.new_state(2), decoder.new_state(2)
    decoder.decode(latents, whole)
    for chunk in latents.split((1, 5, 6), dim=-1):
        decoder.decode(chunk, chunked)
    assert whole.abs().max() > 0
    torch.testing.assert_close(chunked, whole, **TOLERANCE)


def test_rows_are_independent(decoder: VaeDecoder) -> None:
    latents = random_latents(5, 8)
    state = decoder.new_state(5)
    batched = torch.cat([decoder.decode(chunk, state) for chunk in latents.split(4, dim=-1)], dim=-1)
    for row in range(5):
        torch.testing.assert_close(batched[row], decoder.decode_offline(latents[row : row + 1])[0], **TOLERANCE)


def test_zeroed_row_is_a_fresh_stream_and_leaves_the_others_alone(decoder: VaeDecoder) -> None:
    first, second = random_latents(2, 6, seed=4), random_latents(2, 6, seed=5)
    state = decoder.new_state(2)
    decoder.decode(first, state)
    state[0].zero_()
    audio = decoder.decode(second, state)
    torch.testing.assert_close(audio[0], decoder.decode_offline(second[:1])[0], **TOLERANCE)
    continued = decoder.decode_offline(torch.cat((first[1:], second[1:]), dim=-1))[0]
    torch.testing.assert_close(audio[1], continued[-audio.shape[-1] :], **TOLERANCE)


def test_streams_join_and_leave_a_slot_buffer(decoder: VaeDecoder) -> None:
    """Three streams of different lengths and starts share a buffer of slots; slot 4 pads the batch."""
    streams = [random_latents(1, frames, seed=frames) for frames in (20, 8, 12)]
    schedule = [((0,), (2,)), ((0, 1), (2, 0)), ((0, 1), (2, 0)), ((2, 0), (3, 2)), ((2,), (3,)), ((2, 0), (3, 2))]
    states = decoder.new_state(5)
    untouched = states[1].normal_().clone()
    heard: list[list[Tensor]] = [[], [], []]
    position = [0, 0, 0]
    for members, slots in schedule:
        padding = 3 - len(members)
        chunks = [streams[i][..., position[i] : position[i] + 4] for i in members] + [torch.ones(1, 8, 4)] * padding
        audio = decoder.decode_slots(torch.cat(chunks), states, torch.tensor(list(slots) + [4] * padding))
        for row, i in enumerate(members):
            heard[i].append(audio[row])
            position[i] += 4
    assert position == [20, 8, 12]
    for stream, chunks_heard in zip(streams, heard, strict=True):
        torch.testing.assert_close(torch.cat(chunks_heard), decoder.decode_offline(stream)[0], **TOLERANCE)
    assert torch.equal(states[1], untouched)


def test_decode_needs_nothing_from_the_data(decoder: VaeDecoder) -> None:
    """Shapes alone decide what runs, as CUDA graphs demand: it also runs where there is no data."""
    on_meta = VaeDecoder.from_tensors(decoder.config, official_vae(decoder.config, "meta").state_dict(), "meta")
    audio = on_meta.decode_slots(
        torch.empty(2, 8, 4, device="meta"), on_meta.new_state(3), torch.empty(2, dtype=torch.int64, device="meta")
    )
    assert audio.shape == (2, 4 * decoder.config.upsampling)
