"""A wall clock that jumps: comparisons, waits and writes continue unaffected, because waits do not
use that clock.
"""

from __future__ import annotations

import asyncio

from gitops_ds.core.duration import Duration
from gitops_ds.service.git import git_schedule
from gitops_ds.service.settings.base import Ratio
from gitops_ds.service.settings.repository import RepositorySettings
from tests.deploy import test_loop
from tests.deploy.test_loop import AGENT, Scene, edit

JUMPS = (24.0, -24.0, 1.0, -1.0, 90_000.0, -90_000.0)  # hours


def test_drift_is_corrected_and_commits_are_applied_independently_of_the_clock() -> None:
    skew = [0.0]

    async def script(scene: Scene) -> None:
        for tag, hours in enumerate(JUMPS, 1):
            skew[0] = hours * 3600
            scene.history.push(AGENT.format(tag=tag))
            await scene.settle()
            assert await scene.image() == str(tag)
            await edit(scene.cluster, "by-hand")
            scene.client.count.reset()
            await scene.settle()
            assert await scene.image() == str(tag)
            assert scene.client.count.total < 60  # a minute

    test_loop.play(script, skew=skew)


async def test_a_schedule_ticks_at_once_when_the_clock_jumped_and_not_otherwise() -> None:
    clock, skew, ticks = asyncio.get_running_loop().time, [0.0], list[float]()
    trigger = git_schedule.trigger_of(
        RepositorySettings(
            "https://git.example.com/fleet", interval=Duration(86_400), jitter=Ratio(0)
        )
    )
    schedule = git_schedule.Schedule(
        trigger, lambda: ticks.append(clock()), lambda: clock() + skew[0]
    )
    await asyncio.sleep(600)
    assert len(ticks) == 1
    for number, hours in enumerate(JUMPS, 2):
        skew[0] = hours * 3600
        await asyncio.sleep(600)
        assert len(ticks) == number
    schedule.shutdown()
    skew[0] = 0.0
    await asyncio.sleep(600)
    assert len(ticks) == 1 + len(JUMPS)
