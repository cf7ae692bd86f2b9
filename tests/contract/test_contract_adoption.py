"""No answer to an adoption, once or permanently, makes the controller delete a pod that it has not
seen to be its own.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from gitops_ds.controller import executor
from gitops_ds.controller.actions import WriteHooks
from gitops_ds.core import errors, names
from gitops_ds.core.cluster import Cluster, Selection
from gitops_ds.core.decision import Action, Adopt, CreatePod, Decision, DeletePod, DeleteRevision
from gitops_ds.core.objects import (
    CONFIG_MAP,
    CONTROLLER_REVISION,
    DAEMONSET,
    NODE,
    POD,
    Body,
    Key,
    Resource,
)
from gitops_ds.daemonset import decide, pod_changes
from gitops_ds.daemonset.cache import Cache
from gitops_ds.kube.apimachinery import daemonsets, pods, revisions
from gitops_ds.testing.simulator import faults
from tests.contract.scenes import Stage

pytestmark = pytest.mark.usefixtures("play")

NODES = [{"metadata": {"name": f"far-{number}"}, "spec": {}, "status": {}} for number in (1, 2, 3)]


@dataclass(frozen=True)
class Answer:
    """What is answered in place of the reply; `done`: the request was nevertheless executed."""

    error: errors.ClusterError
    done: bool = False


class Refusing:
    """Answers some adoptions otherwise, and forwards the rest."""

    def __init__(self, cluster: Cluster, answer: Answer | None) -> None:
        self._cluster, self._answer = cluster, answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def patch(
        self, resource: Resource, namespace: str, name: str, patch: Any, **how: Any
    ) -> Body:
        answer = self._answer if is_adoption(patch) else None
        if answer is not None and not answer.done:
            raise answer.error
        reply = await self._cluster.patch(resource, namespace, name, patch, **how)
        if answer is not None:
            raise answer.error
        return reply


def is_adoption(patch: Any) -> bool:
    references = (patch.get("metadata") or {}).get("ownerReferences") or ()
    return any(reference.get("controller") for reference in references)


class OneEpoch:
    """The cluster is never restored."""

    is_current = True

    def end(self) -> None:
        raise AssertionError("the cluster is older than it was")


@dataclass
class Turns:
    """A controller on the cluster, a turn at a time; it sees the cluster and nodes that only it
    knows.
    """

    stage: Stage
    answer: Answer | None = None  # to each adoption
    # what others do after it has looked and before it acts
    between: Callable[[], Awaitable[None]] | None = None
    done: list[Action] = field(default_factory=list)
    now: float = 1_900_000_000.0

    @property
    def key(self) -> Key:
        return Key(DAEMONSET.group, DAEMONSET.kind, self.stage.namespace, "agent")

    async def turn(self) -> Decision:
        cache, which = Cache(), Selection(self.stage.namespace)
        cache.replace(NODE, NODES, "1")
        for resource in (DAEMONSET, CONTROLLER_REVISION, POD):
            listing = await self.stage.cluster.list(resource, which)
            cache.replace(resource, listing.items, listing.version)
        seen = cache.observe(self.key, self.now)
        assert seen is not None
        decision = decide.decide(seen)
        if self.between is not None:
            await self.between()
        refusing = Refusing(self.stage.cluster, self.answer)

        def remember(resource: Any, body: Body) -> None:
            cache.wrote(resource, body, self.now)

        stage = executor.ExecutionContext(
            refusing,
            lambda: self.now,
            WriteHooks(remember),
            lambda event: None,
            asyncio.Semaphore(16),
            lambda number: OneEpoch(),
        )
        await executor.perform(stage, seen, decision)
        self.done += decision.actions
        return decision


async def made(stage: Stage) -> Turns:
    """A DaemonSet, its revision, and a pod of its own on the first node."""
    await stage.cluster.create(DAEMONSET, stage.daemonset())
    turns = Turns(stage)
    for _ in range(3):
        await turns.turn()
    turns.done.clear()
    return turns


async def orphan(turns: Turns, name: str, node: str, hash: str) -> Body:
    """A pod without an owner that the selector matches."""
    body = pods_of(turns.stage, node)
    metadata = {
        "name": name,
        "namespace": turns.stage.namespace,
        "labels": {"app": "agent", names.REVISION_HASH: hash},
    }
    return await turns.stage.cluster.create(POD, {**body, "metadata": metadata})


def pods_of(stage: Stage, node: str) -> dict[str, Any]:
    containers = [{"name": "c", "image": "nginx:0"}]
    spec = {"containers": containers, "affinity": pod_changes.pinned_to({}, node)}
    return {"apiVersion": "v1", "kind": "Pod", "spec": spec}


async def there(stage: Stage) -> dict[str, Body]:
    """The pods of the namespace that are not being deleted, by UID."""
    items = (await stage.cluster.list(POD, Selection(stage.namespace))).items
    return {
        body["metadata"]["uid"]: body
        for body in items
        if "deletionTimestamp" not in body["metadata"]
    }


ANSWERS: dict[str, Answer] = {
    **{
        str(status): Answer(faults.failure(status))
        for status in (400, 401, 403, 404, 409, 410, 422, 429, 500, 503, 504)
    },
    "no answer": Answer(errors.ClusterUnreachable("no answer within 30 s")),
    "no answer, and it was done": Answer(
        errors.ClusterUnreachable("no answer within 30 s"), done=True
    ),
}


@pytest.mark.parametrize("answer", ANSWERS)
async def test_a_refused_adoption_deletes_and_creates_nothing(stage: Stage, /, answer: str) -> None:
    turns = await made(stage)
    twin = await orphan(turns, "older", "far-1", "old")
    old = await orphan(turns, "alone", "far-2", "old")
    before = set(await there(stage))
    turns.answer = ANSWERS[answer]
    for _ in range(4):
        await turns.turn()
        if answer != "no answer, and it was done":
            assert all(isinstance(action, Adopt) for action in turns.done)
            assert set(await there(stage)) == before
    assert {twin["metadata"]["uid"], old["metadata"]["uid"]} <= before
    turns.answer = None
    for _ in range(6):
        await turns.turn()
    ours = (await turns_daemonset(stage)).uid
    owners = [pods.controller_of(body["metadata"]) for body in (await there(stage)).values()]
    assert {owner.uid if owner else "" for owner in owners} == {ours}


async def turns_daemonset(stage: Stage) -> Any:
    return daemonsets.daemonset_of(await stage.cluster.get(DAEMONSET, stage.namespace, "agent"))


async def vanishes(stage: Stage, name: str) -> None:
    await stage.cluster.delete(POD, stage.namespace, name)


async def is_replaced(stage: Stage, name: str) -> None:
    await vanishes(stage, name)
    labels = {"app": "agent", "pod": "another"}
    body = {
        **pods_of(stage, "far-1"),
        "metadata": {"name": name, "namespace": stage.namespace, "labels": labels},
    }
    await stage.cluster.create(POD, body)


async def is_taken(stage: Stage, name: str) -> None:
    other = await stage.cluster.create(CONFIG_MAP, stage.config_map("other", {}))
    owner = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "other",
        "uid": other["metadata"]["uid"],
        "controller": True,
    }
    await stage.cluster.patch(
        POD, stage.namespace, name, {"metadata": {"ownerReferences": [owner]}}
    )


@pytest.mark.parametrize("event", [vanishes, is_replaced, is_taken])
async def test_an_orphan_that_changes_before_its_adoption_causes_no_deletion_of_our_pods(
    stage: Stage, /, event: Callable[[Stage, str], Awaitable[None]]
) -> None:
    turns = await made(stage)
    ours = set(await there(stage))
    await orphan(turns, "older", "far-1", "old")

    async def between() -> None:
        turns.between = None
        await event(stage, "older")

    turns.between = between
    for _ in range(2):
        await turns.turn()
        if event is not is_replaced:
            assert not [action for action in turns.done if isinstance(action, DeletePod)]
    decision = await turns.turn()
    if event is not is_replaced:
        assert not [action for action in turns.done if isinstance(action, DeletePod)]
    assert ours <= set(await there(stage)) or event is is_replaced
    assert not [action for action in decision.actions if isinstance(action, CreatePod)]


async def test_a_pod_that_takes_the_name_of_one_to_delete_stays(stage: Stage, /) -> None:
    turns = await made(stage)
    name = next(
        pod.name for pod in map(pods.pod_of, (await there(stage)).values()) if pod.node == "far-1"
    )
    failed = {"status": {"phase": "Failed"}}
    await stage.cluster.patch(POD, stage.namespace, name, failed, subresource="status")
    turns.between = lambda: is_replaced(stage, name)
    decision = await turns.turn()
    assert [action.key.name for action in decision.actions if isinstance(action, DeletePod)] == [
        name
    ]
    assert name in {body["metadata"]["name"] for body in (await there(stage)).values()}


@pytest.mark.parametrize("answer", ANSWERS)
async def test_a_revision_that_was_not_adopted_gives_no_pod_its_hash(
    stage: Stage, /, answer: str
) -> None:
    await stage.cluster.create(DAEMONSET, stage.daemonset())
    found = copy.deepcopy(dict(revisions.new(await turns_daemonset(stage), 1)))
    found["metadata"] = {
        **found["metadata"],
        "name": "stray",
        "labels": {"app": "agent", names.REVISION_HASH: "stray"},
    }
    del found["metadata"]["ownerReferences"]
    await stage.cluster.create(CONTROLLER_REVISION, found)
    turns = Turns(stage, ANSWERS[answer])
    for _ in range(3):
        await turns.turn()
    if answer != "no answer, and it was done":
        assert all(isinstance(action, Adopt) for action in turns.done)
        assert not await there(stage)
    assert not [action for action in turns.done if isinstance(action, DeleteRevision)]
    turns.answer = None
    for _ in range(4):
        await turns.turn()
    hashes = {
        body["metadata"]["labels"][names.REVISION_HASH] for body in (await there(stage)).values()
    }
    assert hashes == {"stray"}
