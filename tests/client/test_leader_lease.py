"""Two candidates and a simulated API server in virtual time: the lease changes its holder, and
no write passes without it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest

from gitops_ds.core import errors
from gitops_ds.core.events.base import Event
from gitops_ds.core.events.leader_election import LeaderElected, LeaderLost
from gitops_ds.core.objects import CONFIG_MAP, LEASE
from gitops_ds.kube.client.fence import Fence
from gitops_ds.kube.client.leader_election import Candidate, LeaseTiming
from gitops_ds.kube.client.leader_lease import Clocks, Election
from gitops_ds.testing import simulator
from tests.simulator.setup import Setup, play, set_up

_numbers = itertools.count()
LARGEST = 2**31 - 1  # an int32, as both fields of a Lease


class One:
    """A candidate, its fence, and its events."""

    def __init__(self, there: Setup, name: str) -> None:
        clock = asyncio.get_running_loop().time
        self.events: list[Event] = []
        self.turns: list[bool] = []
        self.fence = Fence(clock)
        self.cluster = there.cluster
        clocks = Clocks(clock, clock, lambda: 0.5)
        candidate = Candidate("default", "lease", name, LeaseTiming(10, 7, 2))
        self.election = Election(there.cluster, candidate, self.fence, self.events.append, clocks)
        self.task = asyncio.create_task(self.election.run(self.turns.append))

    async def writes(self) -> bool:
        try:
            name = f"written-{next(_numbers)}"
            async with self.fence.passing():
                await self.cluster.create(
                    CONFIG_MAP,
                    {
                        "apiVersion": "v1",
                        "kind": "ConfigMap",
                        "metadata": {"namespace": "default", "name": name},
                    },
                )
        except errors.NotLeading:
            return False
        return True


def scene(play_it: Callable[[Setup, One, One], object]) -> None:
    async def whole() -> None:
        async with set_up(1) as there:
            first = One(there, "a")
            await asyncio.sleep(12)  # a lease that it creates is a leader's only after its duration
            second = One(there, "b")
            await asyncio.sleep(5)
            await play_it(there, first, second)  # type: ignore[misc]
            for one in (first, second):
                one.task.cancel()
            await asyncio.gather(first.task, second.task, return_exceptions=True)

    play(whole)


def test_only_the_leader_writes() -> None:
    async def then(_: Setup, first: One, second: One) -> None:
        assert (await first.writes(), await second.writes()) == (True, False)
        assert (first.turns, second.turns) == ([True], [])

    scene(then)


def test_a_leader_that_is_gone_is_followed_after_the_duration_and_one_that_stops_at_once() -> None:
    async def then(there: Setup, first: One, second: One) -> None:
        first.task.cancel()
        await asyncio.sleep(12)
        assert await second.writes()
        third = One(there, "c")
        await asyncio.sleep(2)
        second.election.stop()
        await asyncio.sleep(1.5)
        assert (await second.writes(), await third.writes()) == (False, True)
        assert (await there.people.get(LEASE, "default", "lease"))["spec"]["leaseTransitions"] == 2
        third.task.cancel()

    scene(then)


def test_a_stolen_lease_ends_the_turn() -> None:
    async def then(there: Setup, first: One, _: One) -> None:
        await there.people.patch(LEASE, "default", "lease", {"spec": {"holderIdentity": "thief"}})
        await asyncio.sleep(3)
        assert first.turns == [True, False]
        assert not await first.writes()
        assert [
            type(event) for event in first.events if isinstance(event, LeaderElected | LeaderLost)
        ] == [LeaderElected, LeaderLost]

    scene(then)


def test_a_lease_with_the_largest_numbers_is_acquired_after_five_minutes() -> None:
    async def then(there: Setup, _first: One, _second: One) -> None:
        spec = {
            "holderIdentity": "thief",
            "leaseDurationSeconds": LARGEST,
            "leaseTransitions": LARGEST,
        }
        await there.people.patch(LEASE, "default", "lease", {"spec": spec})
        await asyncio.sleep(310)
        lease = (await there.people.get(LEASE, "default", "lease"))["spec"]
        assert lease["holderIdentity"] in {"a", "b"}
        assert lease["leaseTransitions"] == LARGEST

    scene(then)


@pytest.mark.sampled
@pytest.mark.parametrize("latency", [1.0, 2.0, 3.0, 5.0])
async def test_at_any_latency_one_candidate_leads_is_followed_and_never_two_may_write(
    latency: float,
) -> None:
    async with set_up(1) as there:
        there.cluster.habits = simulator.Habits(latency=latency)
        both = [One(there, name) for name in "ab"]

        async def leaders(seconds: int) -> set[int]:
            """The number of open fences, at each tenth of a second."""
            result = set()
            for _ in range(seconds * 10):
                await asyncio.sleep(0.1)
                result.add(sum(one.fence.left > 0 for one in both))
            return result

        assert await leaders(90) == {0, 1}
        assert await leaders(300) == {1}
        leader = next(one for one in both if one.election.leads)
        leader.task.cancel()
        assert await leaders(60) == {0, 1}
        assert await leaders(60) == {1}
        for one in both:
            one.task.cancel()
        await asyncio.gather(*(one.task for one in both), return_exceptions=True)


def test_a_lease_is_given_back_also_where_the_reply_to_its_last_renewal_was_lost() -> None:
    async def then(there: Setup, first: One, second: One) -> None:
        # An annotation of another client has the same effect on the version as a renewal whose
        # reply was lost.
        await there.people.patch(
            LEASE, "default", "lease", {"metadata": {"annotations": {"seen": "yes"}}}
        )
        first.election.stop()
        await asyncio.sleep(1.5)
        assert await second.writes()

    scene(then)


async def test_a_fence_gives_up_what_is_on_its_way_when_the_time_ends_and_not_before() -> None:
    clock = asyncio.get_running_loop().time
    fence = Fence(clock)

    async def slow() -> None:
        async with fence.passing():
            await asyncio.sleep(30)

    began = clock()
    fence.move(began + 5)
    write = asyncio.create_task(slow())
    await asyncio.sleep(4)
    fence.move(began + 9)  # renewed
    with pytest.raises(errors.NotLeading):
        await write
    assert clock() - began == pytest.approx(9, abs=0.01)
    with pytest.raises(errors.NotLeading):
        fence.check()


async def test_a_fence_closes_while_it_gives_up_what_is_on_its_way() -> None:
    fence = Fence(asyncio.get_running_loop().time)

    async def slow() -> None:
        async with fence.passing():
            try:
                await asyncio.sleep(30)
            finally:
                fence.close()  # by the election, before the cancelled write ends

    fence.move(asyncio.get_running_loop().time() + 5)
    with pytest.raises(errors.NotLeading):
        await slow()
