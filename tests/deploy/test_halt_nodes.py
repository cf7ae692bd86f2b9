"""A halt is decided by nodes as they are, however late the watch of nodes is: a reboot
restarts the containers of its node, and is not a failure of the template.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gitops_ds.core import errors
from gitops_ds.core.cluster import EVERYTHING, Listing, Selection, WatchEvent
from gitops_ds.core.decision import Powers
from gitops_ds.core.objects import NODE, Resource
from gitops_ds.testing.simulator import Client
from tests.deploy.rollout_scene import Scene, both, play

LATE = 600.0  # seconds


class LateNodes:
    """A client whose watch of nodes is late; a list of one node has an error, if there is one."""

    def __init__(self, client: Client, error: errors.ClusterError | None = None) -> None:
        self._client, self._error = client, error
        self.is_late = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def list(self, resource: Resource, which: Selection = EVERYTHING) -> Listing:
        if resource == NODE and which.fields.startswith("metadata.name=node") and self._error:
            raise self._error
        return await self._client.list(resource, which)

    async def watch(
        self, resource: Resource, since: str, which: Selection = EVERYTHING
    ) -> AsyncIterator[WatchEvent]:
        async for event in self._client.watch(resource, since, which):
            if resource == NODE and self.is_late:
                await asyncio.sleep(LATE)
            yield event


def halts(powers: Powers, error: errors.ClusterError | None = None) -> bool:
    """Whether the reboot of both nodes of a canary halts the rollout; views agree at any time."""
    found = list[bool]()

    async def script(scene: Scene) -> None:
        scene.kill()
        client = LateNodes(scene.cluster.client("gitops-ds"), error)
        scene.account = lambda _: client
        scene.start()
        await asyncio.sleep(60)
        scene.push("2")
        await scene.until(lambda: all(pod.ready for _, pod in scene.pods().values()))
        await scene.until_exactly(lambda: len(scene.on("2")) == 2)
        await asyncio.sleep(30)
        client.is_late = True
        for node in sorted(scene.on("2")):
            scene.cluster.kill_node(node)
        await asyncio.sleep(10)
        for node in sorted(scene.on("2")):
            scene.cluster.reboot_node(node)
        for _ in range(600):
            await asyncio.sleep(0.1)
            shown, record = scene.observed(), scene.record()
            assert shown is not None
            assert (shown.halt is None) is (record.halt is None)
        restarts = [pod.restarts for tag, pod in scene.pods().values() if tag == "2"]
        assert restarts == [1, 1]
        found.append(scene.record().halt is not None)

    play(script, powers)
    return found[0]


@both
def test_a_reboot_that_the_watch_of_nodes_shows_late_halts_nothing(powers: Powers) -> None:
    assert not halts(powers)


@pytest.mark.parametrize(
    "error", [errors.ServerFault("away", 503), errors.Forbidden("no", 403, "Forbidden")]
)
def test_nodes_that_cannot_be_read_are_as_known(error: errors.ClusterError) -> None:
    assert halts(Powers.PACE, error)
