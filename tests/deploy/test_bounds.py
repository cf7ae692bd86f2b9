"""Any write of the deployer is refused, for any time: few requests, and when it ends
the cluster is in sync.

A table of every write, each with answers of the API server that stay for an hour, while nodes
change all the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from gitops_ds.core import names
from gitops_ds.core.cluster import PatchType
from gitops_ds.core.objects import CONFIG_MAP, DAEMONSET, NODE, Body
from gitops_ds.deploy import state_store
from gitops_ds.ownership.options import ApplyOptions, Guards
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import faults
from gitops_ds.testing.simulator.faults import RequestFault, SimulatedRequest
from tests.deploy import test_loop
from tests.deploy.test_loop import AGENT, Scene, edit

play = test_loop.play

BOUND = 60  # requests in any minute but the first two: one a second
MINUTES = 60
MORE = """\
---
apiVersion: v1
kind: ConfigMap
metadata: {name: more, namespace: default}
data: {a: b}
"""
ASKED = ApplyOptions(Guards(prune=True, share=1.0), patience=0.0)


def is_state(request: SimulatedRequest) -> bool:
    return request.resource == CONFIG_MAP and request.namespace == "gitops-ds"


@dataclass(frozen=True)
class Write:
    """A write of the deployer: which request it is, and what makes it wanted."""

    name: str
    is_it: Callable[[SimulatedRequest], bool]
    commit: str = AGENT.format(tag="2")
    drifts: bool = False
    requested: bool = False
    state_gone: bool = False
    by_kubectl: bool = False


WRITES = [
    Write("dry run", lambda r: r.verb == "apply" and r.dry_run and r.resource == DAEMONSET),
    Write(
        "apply of an object that is there",
        lambda r: r.verb == "apply" and not r.dry_run and r.resource == DAEMONSET,
    ),
    Write(
        "apply of a new object",
        lambda r: r.verb == "apply" and r.name == "more",
        AGENT.format(tag="1") + MORE,
    ),
    Write(
        "correction of drift",
        lambda r: r.verb == "apply" and not r.dry_run and r.resource == DAEMONSET,
        "",
        drifts=True,
    ),
    Write(
        "delete",
        lambda r: r.verb == "delete" and r.resource == CONFIG_MAP,
        AGENT.format(tag="1").partition("---")[0],
    ),
    Write(
        "delete of a DaemonSet",
        lambda r: r.verb == "delete" and r.resource == DAEMONSET,
        AGENT.format(tag="1").partition("---\n")[2],
    ),
    Write(
        "taking over from kubectl",
        lambda r: r.verb == "patch" and r.resource == DAEMONSET,
        by_kubectl=True,
    ),
    Write("save of the state", lambda r: r.verb == "patch" and is_state(r)),
    Write("first state", lambda r: r.verb == "create" and is_state(r), state_gone=True),
    Write("answer to a request", lambda r: r.verb == "patch" and is_state(r), "", requested=True),
]
ANSWERS: list[RequestFault] = [
    *(faults.failure(status) for status in (401, 403, 404, 409, 422, 429, 500, 503)),
    simulator.Silence(5.0),
    simulator.Silence(5.0, done=True),
]


async def churn(scene: Scene) -> None:
    """For three minutes, a node that changes each second, as with an autoscaler that marks nodes
    with the time.
    """
    client = scene.cluster.client("autoscaler")
    for number in range(180):
        patch = {
            "spec": {
                "taints": [{"key": "soon", "value": str(number), "effect": "PreferNoSchedule"}]
            }
        }
        await client.patch(NODE, "", "node-0", patch, type=PatchType.MERGE)
        await asyncio.sleep(1)


async def wanted(scene: Scene, write: Write) -> None:
    """Makes the write wanted."""
    name = state_store.config_map_name("test")
    if write.by_kubectl:
        patch: Body = {"metadata": {"annotations": {"note": "x"}}}
        await scene.cluster.client("kubectl-replace").patch(
            DAEMONSET, "default", "agent", patch, type=PatchType.MERGE
        )
    if write.state_gone:
        await scene.cluster.delete(CONFIG_MAP, "gitops-ds", name)
    if write.commit:
        scene.history.push(write.commit)
    if write.drifts:
        await edit(scene.cluster)
    if write.requested:
        note = {"metadata": {"annotations": {names.REQUESTED_AT: "now"}}}
        await scene.cluster.client("people").patch(CONFIG_MAP, "gitops-ds", name, note)


async def settled(scene: Scene, write: Write) -> bool:
    """Whether the cluster is in sync with Git."""
    text = write.commit or AGENT.format(tag="1")
    objects = {
        body["metadata"]["name"]
        for body in (await scene.cluster.list(CONFIG_MAP)).items
        if "state.json.gz" not in str(body)
    }
    images = [await scene.image()] if "DaemonSet" in text else []
    state = await state_store.load(scene.cluster, "gitops-ds", "test")
    tag = [text.partition("example.com/agent:")[2][0]] if "DaemonSet" in text else []
    more = ("name: more" in text) == ("more" in objects)
    return images == tag and more and state.last_good == scene.history.id(scene.history.at)


@pytest.mark.sampled
@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.name)
@pytest.mark.parametrize(
    "answer", ANSWERS, ids=lambda answer: str(getattr(answer, "status", answer))
)
@pytest.mark.play(ASKED)
async def test_a_write_that_is_refused_for_an_hour_costs_few_requests_and_then_succeeds(
    scene: Scene, /, write: Write, answer: RequestFault
) -> None:
    await scene.settle()
    scene.client.faults = lambda request: answer if write.is_it(request) else None
    await wanted(scene, write)
    other: asyncio.Task[None] | None = None
    counts = []
    for minute in range(MINUTES):
        other = asyncio.create_task(churn(scene)) if minute == 10 else other
        scene.client.count.reset()
        scene.loop.request()
        await asyncio.sleep(60)
        counts.append(scene.client.count.total - scene.client.count.of("watch"))
    assert max(counts[2:]) <= BOUND, counts
    scene.client.faults = faults.none
    await asyncio.sleep(400)
    scene.loop.request()
    await asyncio.sleep(5)
    assert await settled(scene, write)
    if other is not None:
        await other
