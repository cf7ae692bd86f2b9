"""In a replacement the create follows the delete of its node, regardless of other requests and of
the stop of the service.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from gitops_ds.controller import executor
from gitops_ds.controller.actions import WriteHooks
from gitops_ds.core.cluster import Cluster
from gitops_ds.core.decision import (
    CreatePod,
    Decision,
    DeleteCause,
    DeletePod,
    Observation,
    PodMark,
)
from gitops_ds.core.objects import POD, Body, Key, Resource
from gitops_ds.kube.apimachinery import daemonsets
from tests.contract.test_contract_adoption import OneEpoch
from tests.plan.world import daemonset

NODES = [f"node-{number}" for number in range(8)]
OWNER = daemonsets.daemonset_of(daemonset("agent", "agent:1", "default"))


class Recorder:
    """A cluster that records each request with the node of its pod; a request takes a turn."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []

    async def patch(self, _: Resource, __: str, name: str, patch: Body, **___: Any) -> Body:
        return await self._record("mark", name, patch)

    async def delete(self, _: Resource, __: str, name: str, *, uid: str) -> Body:
        return await self._record("delete", name, {"uid": uid})

    async def create(self, _: Resource, body: Body) -> Body:
        return await self._record("create", body["metadata"]["name"], body)

    async def _record(self, verb: str, name: str, reply: Body) -> Body:
        self.requests.append((verb, name))
        await asyncio.sleep(0)
        return {"kind": "Pod", **reply}


async def replaced(recorder: Recorder, stops_after: int | None = None) -> None:
    """The replacement of the pods of all nodes, by one request at a time."""
    reference = {"controller": True, "kind": "DaemonSet", "name": "agent", "uid": OWNER.uid}
    labels = {"app": "agent"}
    actions: list[CreatePod | DeletePod] = []
    for node in NODES:
        key = Key(POD.group, POD.kind, "default", node)
        mark = PodMark(key, node, OWNER.uid)
        actions.append(DeletePod(key, node, node, DeleteCause.OUTDATED, "", mark))
        metadata = {"name": node, "ownerReferences": [reference], "labels": labels}
        actions.append(CreatePod(node, {"metadata": metadata}, node, ""))
    stage = executor.ExecutionContext(
        cast("Cluster", recorder),
        lambda: 0.0,
        WriteHooks(lambda *_: None),
        lambda _: None,
        asyncio.Semaphore(1),
        lambda _: OneEpoch(),
        stopping=lambda: stops_after is not None and len(recorder.requests) >= stops_after,
    )
    assert not (
        await executor.perform(stage, Observation(0.0, OWNER, ()), Decision((tuple(actions),)))
    ).errors


WRITES = [(verb, node) for node in NODES for verb in ("mark", "delete", "create")]


async def test_no_request_of_another_node_comes_between_a_delete_and_its_create() -> None:
    recorder = Recorder()
    await replaced(recorder)
    assert recorder.requests == WRITES


@pytest.mark.parametrize(("requests", "done"), [(0, 0), (1, 3), (4, 6), (6, 6), (23, 24)])
async def test_a_service_that_stops_completes_the_node_and_begins_no_other(
    requests: int, done: int
) -> None:
    recorder = Recorder()
    await replaced(recorder, requests)
    assert recorder.requests == WRITES[:done]
