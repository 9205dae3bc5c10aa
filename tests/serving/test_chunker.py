"""From patches to chunks: no empty chunk but the last, held samples counted, base64 and latents."""

import numpy as np
import pytest
import soxr

from voxcpm_core.audio.encode import make_encoder
from voxcpm_core.audio.resample import StreamResampler
from voxcpm_core.serving.chunker import Chunk, Chunker
from voxcpm_core.serving.options import OutputOptions
from voxcpm_core.types import FinishReason, FloatArray, Patch

SAMPLES = 1600
RATE = 16_000


def patches(count: int) -> list[Patch]:
    rng = np.random.default_rng(0)
    return [
        Patch(
            i,
            rng.standard_normal((2, 4), dtype=np.float32),
            rng.uniform(-0.5, 0.5, SAMPLES).astype(np.float32),
            FinishReason.STOP if i == count - 1 else None,
        )
        for i in range(count)
    ]


def chunks_of(chunker: Chunker, given: list[Patch]) -> list[Chunk]:
    return [chunk for chunk in map(chunker.add, given) if chunk is not None]


class EveryThird:
    """Yields bytes at every third call only, as an MP3 encoder with a long delay would."""

    def __init__(self) -> None:
        self.num_calls = 0

    def encode(self, pcm: FloatArray) -> bytes:
        self.num_calls += 1
        return b"abc" if self.num_calls % 3 == 0 else b""

    def finish(self) -> bytes:
        return b""


@pytest.mark.parametrize("format", ["pcm_s16le", "wav", "mp3"])
@pytest.mark.parametrize("step_s", [0.0, 0.3])
def test_streamed_chunks_are_the_encoded_whole(format: str, step_s: float):
    given = patches(11)
    times = iter(np.arange(100) * step_s)
    chunker = Chunker(OutputOptions(format), make_encoder(format, RATE, True), 0.1, lambda: float(next(times)))
    chunks = chunks_of(chunker, given)
    whole = make_encoder(format, RATE, True)
    expected = b"".join(whole.encode(patch.audio) for patch in given) + whole.finish()
    assert b"".join(chunk.audio for chunk in chunks) == expected
    assert all(chunk.audio for chunk in chunks[:-1])
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    assert sum(chunk.num_samples for chunk in chunks) == 11 * SAMPLES
    assert [chunk.is_last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert [chunk.finish_reason for chunk in chunks] == [""] * (len(chunks) - 1) + ["stop"]


@pytest.mark.parametrize("to_rate", [8_000, 22_050, 48_000])
def test_resampled_chunks_are_the_whole_resampled_at_once(to_rate: int):
    given = patches(9)
    chunker = Chunker(
        OutputOptions("pcm_f32le"), make_encoder("pcm_f32le", to_rate, True), 0.1, lambda: 0.0,
        StreamResampler(RATE, to_rate),
    )
    chunks = chunks_of(chunker, given)
    joined = np.frombuffer(b"".join(chunk.audio for chunk in chunks), "<f4")
    whole = soxr.resample(np.concatenate([patch.audio for patch in given]), RATE, to_rate)
    np.testing.assert_allclose(joined, np.clip(whole, -1, 1), atol=1e-6)
    assert sum(chunk.num_samples for chunk in chunks) == len(whole)
    assert all(chunk.audio for chunk in chunks)


@pytest.mark.parametrize("format", ["pcm_s16le", "wav", "mp3"])
def test_without_streaming_there_is_one_chunk(format: str):
    given = patches(7)
    (chunk,) = chunks_of(Chunker(OutputOptions(format, stream=False), make_encoder(format, RATE, False), 0.1), given)
    whole = make_encoder(format, RATE, False)
    assert chunk.audio == b"".join(whole.encode(patch.audio) for patch in given) + whole.finish()
    assert (chunk.index, chunk.num_samples, chunk.is_last) == (0, 7 * SAMPLES, True)


def test_samples_without_bytes_are_counted_with_the_next_chunk():
    chunks = chunks_of(Chunker(OutputOptions("mp3"), EveryThird(), 0.1, lambda: 0.0), patches(7))
    assert [chunk.audio for chunk in chunks] == [b"abc", b"abc", b""]
    assert [chunk.num_samples for chunk in chunks] == [3 * SAMPLES, 3 * SAMPLES, SAMPLES]


def test_latents_travel_with_their_audio():
    given = patches(9)
    options = OutputOptions(wants_latents=True)
    chunks = chunks_of(Chunker(options, make_encoder("pcm_s16le", RATE, True), 0.1, lambda: 0.0), given)
    for chunk in chunks:
        assert chunk.latents.shape[0] // 2 * SAMPLES == chunk.num_samples
    np.testing.assert_array_equal(
        np.concatenate([chunk.latents for chunk in chunks]), np.concatenate([patch.latents for patch in given])
    )


def test_latents_alone_have_no_samples():
    given = [Patch(patch.index, patch.latents, None, patch.finish_reason) for patch in patches(5)]
    options = OutputOptions(wants_audio=False, wants_latents=True)
    chunks = chunks_of(Chunker(options, None, 0.1, lambda: 0.0), given)
    assert [chunk.latents.shape for chunk in chunks] == [(2, 4), (2, 4), (4, 4), (2, 4)]
    assert {chunk.num_samples for chunk in chunks} == {0}
    assert {chunk.audio for chunk in chunks} == {b""}
