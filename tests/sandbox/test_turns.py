"""The turns of repositories at work that shares the memory of the pod, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gitops_ds.source.sandbox.turns import MOST_ENDS, TurnEnded, Turns


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


async def busy(turns: Turns, who: str, length: float) -> None:
    """Short work without a pause."""
    while True:
        await turns.run(who, seconds(length), kept=10)


@pytest.mark.parametrize("length", [6.5, 8.8])  # ends before others may end it
async def test_a_repository_waits_for_the_running_work_and_not_for_that_of_all_others(
    length: float,
) -> None:
    turns = Turns()
    others = [asyncio.create_task(busy(turns, f"busy-{n}", length)) for n in range(5)]
    await asyncio.sleep(100)
    for _ in range(5):
        began = now()
        assert await turns.run("light", seconds(1), kept=10) - began <= length + 1.5
        await asyncio.sleep(20)
    began = now()
    assert await turns.run("large", seconds(30), kept=0, long=True) - began <= length + 31, (
        "work that is long too"
    )
    for other in others:
        other.cancel()


async def test_repositories_that_are_always_busy_share_the_time() -> None:
    turns, lengths = Turns(), {"long": 20.0, "a": 5.0, "b": 5.0, "c": 2.0, "d": 2.0}
    used = dict.fromkeys(lengths, 0.0)

    async def worker(who: str, length: float) -> None:
        while True:
            await turns.run(who, seconds(length), kept=60, long=who == "long")
            used[who] += length

    workers = [asyncio.create_task(worker(who, length)) for who, length in lengths.items()]
    await asyncio.sleep(2000)
    assert list(used.values()) == pytest.approx([400] * 5, rel=0.1)
    for task in workers:
        task.cancel()


async def test_work_that_may_not_begin_again_ends_with_an_error() -> None:
    turns = Turns()
    push = asyncio.create_task(turns.run("heavy", seconds(60), kept=10, repeats=False))
    await asyncio.sleep(1)
    assert await turns.run("light", seconds(1), kept=10) == pytest.approx(11, abs=2)
    with pytest.raises(TurnEnded):
        await push
