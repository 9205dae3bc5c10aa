"""The asyncio pool: the same samples, and a loop that is never held up."""

import asyncio
import time
from contextlib import aclosing

import numpy as np
import pytest

from tests.api.speaking import (
    CANCEL_LIMIT_S,
    ENDLESS,
    GENEROUS_S,
    SMALL,
    assert_same,
    engine_audio,
    is_idle,
    say,
    tone,
    wait_until,
    wav_file,
)
from tests.noise_voice import NOISE
from voxcpm_core import VoxCPM
from voxcpm_core.api import AsyncPool
from voxcpm_core.errors import ConfigError, RequestError
from voxcpm_core.types import FloatArray

TICK_S, LOOP_LIMIT_S = 0.01, 5 * 0.2


async def asay(pool: AsyncPool, text: str, **options) -> FloatArray:
    return np.concatenate([chunk async for chunk in pool.generate(text, **options)])


async def longest_gap_s(stop: asyncio.Event) -> float:
    """How long the loop ran nothing, until `stop`."""
    longest_s, last_s = 0.0, time.monotonic()
    while not stop.is_set():
        await asyncio.sleep(TICK_S)
        longest_s, last_s = max(longest_s, time.monotonic() - last_s), time.monotonic()
    return longest_s


async def until_idle(pool: AsyncPool, timeout_s: float) -> None:
    await asyncio.to_thread(wait_until, lambda: is_idle(pool), timeout_s)


async def make_pool() -> AsyncPool:
    pool = VoxCPM.from_pretrained(NOISE, devices=["cpu"], **SMALL)
    assert isinstance(pool, AsyncPool)
    return pool


@pytest.fixture(scope="module")
def async_pool():
    """One pool for the loops of all tests."""
    pool = asyncio.run(make_pool())
    yield pool
    asyncio.run(pool.stop())


def test_both_pools_and_the_engine_say_the_same(async_pool, pool):
    said = asyncio.run(asay(async_pool, "Hello world", seed=7, max_generate_length=5))
    assert np.array_equal(said, say(pool, "Hello world", seed=7, max_generate_length=5))
    assert_same(said, engine_audio("Hello world"))
    wav = wav_file(tone(0.5))
    assert asyncio.run(async_pool.encode_latents(wav, "wav")) == pool.encode_latents(wav, "wav")
    assert asyncio.run(async_pool.get_model_info()) == pool.get_model_info()


def test_the_loop_runs_while_workers_load_and_speak():
    async def main() -> float:
        done = asyncio.Event()
        gap = asyncio.create_task(longest_gap_s(done))
        pool = await make_pool()
        impatient = asyncio.create_task(pool.wait_for_ready())
        await asyncio.sleep(0)
        impatient.cancel()  # takes nothing from those who wait on
        async with pool:
            assert pool.stats() != ()
            latents = await pool.encode_latents(wav_file(tone(0.5)), "wav")
            await asyncio.gather(*[asay(pool, "and on", prompt_latents=latents, prompt_text="Hello") for _ in range(4)])
        done.set()
        with pytest.raises(RequestError, match="the pool is stopped"):
            await pool.get_model_info()
        return await gap

    assert asyncio.run(main()) < LOOP_LIMIT_S


def test_tasks_share_a_pool(async_pool):
    async def main() -> list[FloatArray]:
        speaking = [asay(async_pool, "Hello world", seed=n % 4, max_generate_length=6) for n in range(16)]
        return await asyncio.gather(*speaking)

    said = asyncio.run(main())
    for index, samples in enumerate(said):
        assert_same(samples, said[index % 4])
    assert is_idle(async_pool)


def test_closing_and_cancelling_give_slot_and_pages_back(async_pool):
    async def main() -> None:
        closed = async_pool.generate("Hello", **ENDLESS)
        await anext(closed)
        task = asyncio.create_task(asay(async_pool, "Hello", **ENDLESS))
        await asyncio.to_thread(wait_until, lambda: async_pool.stats()[0].running == 2)
        await closed.aclose()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until_idle(async_pool, CANCEL_LIMIT_S)

    asyncio.run(main())


def test_cancelled_encoding_harms_nobody(async_pool):
    async def main() -> None:
        wav = wav_file(tone(50.0))
        encoding = [asyncio.create_task(async_pool.encode_latents(wav, "wav")) for _ in range(4)]
        await asyncio.wait(encoding, return_when=asyncio.FIRST_COMPLETED)
        for task in encoding:
            task.cancel()
        assert len(await asay(async_pool, "Hello", max_generate_length=1)) == 7680

    asyncio.run(asyncio.wait_for(main(), 2 * GENEROUS_S))


def test_a_loop_that_ends_takes_its_streams_along(async_pool):
    async def main() -> None:
        async for _ in async_pool.generate("Hello", **ENDLESS):
            break

    asyncio.run(main())
    wait_until(lambda: is_idle(async_pool), CANCEL_LIMIT_S)


def test_a_slow_consumer_holds_up_nobody(async_pool):
    async def main() -> int:
        async with aclosing(async_pool.generate("Hello", max_generate_length=20, seed=1, **ENDLESS)) as slow:
            await anext(slow)
            await asay(async_pool, "Hello", max_generate_length=30, seed=2, **ENDLESS)
            assert is_idle(async_pool)
            return len([chunk async for chunk in slow])

    assert asyncio.run(main()) == 19


def test_bad_input_is_refused_at_the_first_chunk(async_pool):
    async def main() -> None:
        stream = async_pool.generate(" ")
        with pytest.raises(RequestError, match="target_text is empty"):
            await anext(stream)
        with pytest.raises(RequestError, match="cannot be decoded"):
            await async_pool.encode_latents(b"no audio", "wav")

    asyncio.run(main())


def test_a_pool_that_cannot_start_says_so_wherever_it_is_awaited():
    async def main() -> None:
        pool = VoxCPM.from_pretrained("no/such/folder/at-all", devices=["cpu"])
        for waiting in (pool.wait_for_ready, pool.get_model_info, pool.generate("Hello").__anext__):
            with pytest.raises(ConfigError, match="there is no such folder"):
                await waiting()
        assert pool.stats() == ()
        await pool.stop()

    asyncio.run(main())
