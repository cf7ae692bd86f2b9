from __future__ import annotations

import asyncio
import time

import pytest

from gitops_ds.testing.simulator import virtual_time


def test_an_hour_passes_at_once() -> None:
    async def hour() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    began = time.monotonic()
    assert virtual_time.run(hour()) == 3600
    assert time.monotonic() - began < 60


def test_timers_fire_in_their_order() -> None:
    seen: list[str] = []

    async def say(word: str, after: float) -> None:
        await asyncio.sleep(after)
        seen.append(word)

    async def all_of_them() -> None:
        await asyncio.gather(say("third", 90), say("first", 1), say("second", 30))

    virtual_time.run(all_of_them())
    assert seen == ["first", "second", "third"]


def test_a_wait_that_can_never_end_is_an_error_that_names_the_task() -> None:
    async def stuck() -> None:
        task = asyncio.create_task(asyncio.Event().wait(), name="the patient one")
        await task

    with pytest.raises(virtual_time.Deadlock, match="the patient one"):
        virtual_time.run(stuck())


def test_the_clock_does_not_advance_while_a_thread_works() -> None:
    async def work() -> float:
        loop = asyncio.get_running_loop()
        rival = asyncio.create_task(asyncio.sleep(3600))
        await asyncio.to_thread(time.sleep, 0.05)
        rival.cancel()
        return loop.time()

    assert virtual_time.run(work()) == 0


def test_an_error_in_a_timer_ends_the_run() -> None:
    def broken() -> None:
        raise KeyError("lost")

    async def wait() -> None:
        asyncio.get_running_loop().call_later(1, broken)
        await asyncio.sleep(10)

    with pytest.raises(KeyError, match="lost"):
        virtual_time.run(wait())


def test_a_scaled_hour_is_as_short_as_its_speed() -> None:
    async def hour() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    began = time.monotonic()
    shown = virtual_time.run(hour(), speed=36_000)
    assert shown >= 3600
    assert 0.1 <= time.monotonic() - began < 60
    with pytest.raises(ValueError, match="speed must be above 0"):
        virtual_time.run(hour_not_begun(), speed=0)


async def hour_not_begun() -> None: ...


@pytest.mark.parametrize("speed", [None, 1_000_000.0], ids=["virtual", "scaled"])
def test_work_takes_no_time_of_the_loop_on_its_own_thread_or_on_another(
    speed: float | None,
) -> None:
    def work() -> None:
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass

    async def busy() -> float:
        work()
        await asyncio.to_thread(work)
        return asyncio.get_running_loop().time()

    assert virtual_time.run(busy(), speed=speed) == 0


def test_the_clock_shows_the_epoch_at_the_start() -> None:
    async def look() -> float:
        await asyncio.sleep(2.5)
        return virtual_time.clock(1000.0)()

    assert virtual_time.run(look()) == 1002.5
