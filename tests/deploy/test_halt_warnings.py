"""A halt has the newest warning events of the pods that fail, whenever it can have them soon."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from gitops_ds.controller import pod_warnings
from gitops_ds.core import errors
from gitops_ds.core.cluster import EVERYTHING, Listing, Selection
from gitops_ds.core.decision import Powers
from gitops_ds.core.objects import CONTROLLER_REVISION, EVENT, Body, Resource
from gitops_ds.core.rollouts.staged_rollout import Halt
from gitops_ds.testing.simulator import Client, Faults, PodFault, Trouble
from gitops_ds.testing.simulator import faults as simulator_faults
from gitops_ds.testing.simulator.faults import RequestFault, SimulatedRequest
from tests.apimachinery.kubelet_pods import LIVENESS
from tests.deploy.rollout_scene import Scene, play, spoil


class EventReader:
    """A client that may list events, and answers with those of the list, an error or not at all."""

    def __init__(self, client: Client, answer: list[Body] | errors.ClusterError | None) -> None:
        self._client, self._answer = client, answer
        self.reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def may(self, verb: str, resource: Resource, namespace: str = "") -> bool:
        return True

    async def list(self, resource: Resource, which: Selection = EVERYTHING) -> Listing:
        if resource != EVENT:
            return await self._client.list(resource, which)
        self.reads += 1
        if self._answer is None:
            await asyncio.Event().wait()
        if isinstance(self._answer, errors.ClusterError):
            raise self._answer
        return Listing(list(self._answer or ()), "1")


def halted(
    answer: list[Body] | errors.ClusterError | None,
    powers: Powers = Powers.PACE,
    faults: Faults = simulator_faults.none,
) -> tuple[Halt, float, EventReader]:
    """The halt of a template that crashes, the seconds from the commit to its record, and the reads
    within ten minutes.
    """
    found: list[tuple[Halt, float, EventReader]] = []

    async def script(scene: Scene) -> None:
        scene.kill()
        reader = EventReader(scene.cluster.client("gitops-ds", faults), answer)
        scene.account = lambda _: reader
        scene.start()
        await asyncio.sleep(60)
        spoil(scene, PodFault("*:bad", Trouble.CRASHES))
        scene.push("bad")
        pushed = scene.cluster.server.now()
        await scene.until_exactly(lambda: scene.record().halt is not None)
        seconds = scene.cluster.server.now() - pushed
        await asyncio.sleep(600)
        halt = scene.record().halt
        assert halt is not None
        found.append((halt, seconds, reader))

    play(script, powers)
    return found[0]


@pytest.mark.parametrize("powers", [Powers.PACE, Powers.FULL])
def test_a_halt_has_the_events_of_its_pods(powers: Powers) -> None:
    halt, _, _ = halted([LIVENESS], powers)
    assert len(halt.nodes) == 2
    for text in (halt.message, *(node.message for node in halt.nodes)):
        assert LIVENESS["message"] in text


@pytest.mark.parametrize(
    "answer",
    [None, errors.ServerFault("away", 503), errors.Forbidden("no", 403, "Forbidden")],
    ids=["no answer", "error", "refusal"],
)
def test_a_read_that_fails_delays_a_halt_by_two_seconds_at_most(
    answer: errors.ClusterError | None,
) -> None:
    _, prompt, _ = halted([LIVENESS])
    halt, seconds, _ = halted(answer)
    assert seconds <= prompt + pod_warnings.AT_HALT + 0.1
    assert LIVENESS["message"] not in halt.message
    assert "exit code 1" in halt.message


def test_a_halt_that_is_recorded_late_reads_no_further_events() -> None:
    writes = itertools.count()

    def refused(request: SimulatedRequest) -> RequestFault | None:
        is_record = request.resource == CONTROLLER_REVISION and request.verb == "patch"
        # The first one is that of the begin.
        return simulator_faults.failure(500) if is_record and 1 <= next(writes) < 12 else None

    _, prompt, at_once = halted([LIVENESS])
    halt, seconds, late = halted([LIVENESS], faults=refused)
    assert LIVENESS["message"] in halt.message
    assert seconds > prompt + 5
    assert late.reads <= at_once.reads + 4
