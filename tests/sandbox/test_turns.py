"""The turns of repositories at work that shares the memory of the pod, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gitops_ds.source.sandbox.turns import MOST_ENDS, Turns


def seconds(length: float) -> Callable[[], Awaitable[float]]:
    """Work of that length, which returns the time of its end."""

    async def work() -> float:
        await asyncio.sleep(length)
        return now()

    return work


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_long_work_of_one_repository_delays_short_work_of_another_by_seconds() -> None:
    turns = Turns()
    long = asyncio.create_task(turns.run("heavy", seconds(330), kept=0, long=True))
    await asyncio.sleep(100)
    assert await turns.run("light", seconds(1), kept=15) <= 102
    assert await long == pytest.approx(431, abs=2), "it begins again"


async def test_short_work_keeps_its_place_for_its_time_and_gives_it_up_afterwards() -> None:
    turns = Turns()
    slow = asyncio.create_task(turns.run("slow", seconds(60), kept=10))
    await asyncio.sleep(1)
    assert await turns.run("light", seconds(1), kept=10) == pytest.approx(11, abs=2)
    assert await slow == pytest.approx(71, abs=2)


async def test_long_work_is_complete_after_a_limited_number_of_ends_by_each_other_repository() -> (
    None
):
    turns, commits = Turns(), 0
    long = asyncio.create_task(turns.run("heavy", seconds(100), kept=0, long=True))
    while not long.done():
        await asyncio.sleep(30)
        commits += 1
        await turns.run("busy", seconds(1), kept=15)
    assert commits == MOST_ENDS + 1
    assert await long <= 31 * MOST_ENDS + 102


async def test_a_repository_does_not_end_its_own_work() -> None:
    turns = Turns()
    first = asyncio.create_task(turns.run("one", seconds(100), kept=0, long=True))
    await asyncio.sleep(1)
    assert await turns.run("one", seconds(1), kept=15) == 101
    assert await first == 100


async def test_short_work_is_admitted_before_long_and_each_in_order_of_arrival() -> None:
    turns, order = Turns(), list[str]()

    async def work(name: str, *, long: bool) -> None:
        async def attempt() -> None:
            await asyncio.sleep(1)
            order.append(name)

        await turns.run("same", attempt, kept=15, long=long)

    names = {"first": False, "long": True, "second": False, "third": False}
    await asyncio.gather(*(work(name, long=long) for name, long in names.items()))
    assert order == ["first", "second", "third", "long"]


async def test_as_much_work_runs_at_once_as_there_are_places() -> None:
    turns = Turns(2)
    ends = await asyncio.gather(*(turns.run(f"{n}", seconds(4), kept=9) for n in range(4)))
    assert ends == pytest.approx([4, 4, 8, 8])


async def test_a_cancelled_one_leaves_its_place_or_its_wait_to_others() -> None:
    turns = Turns()
    running = asyncio.create_task(turns.run("one", seconds(100), kept=200))
    waiting = asyncio.create_task(turns.run("two", seconds(100), kept=200))
    last = asyncio.create_task(turns.run("three", seconds(1), kept=200))
    await asyncio.sleep(5)
    for task in (waiting, running):
        task.cancel()
    assert await last <= 7
    assert running.cancelled()
    assert waiting.cancelled()


async def test_an_error_of_the_work_is_raised_and_its_place_is_free() -> None:
    async def fails() -> None:
        raise OSError("no process")

    turns = Turns()
    with pytest.raises(OSError, match="no process"):
        await turns.run("one", fails, kept=1)
    assert await turns.run("two", seconds(1), kept=1) == 1
