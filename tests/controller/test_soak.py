"""A year of node churn: what is remembered depends on the nodes that are there, not on those that
ever were.
"""

from __future__ import annotations

import gc
from types import FunctionType, MethodType, ModuleType
from typing import Any

import pytest

from gitops_ds.core.cluster import EventType
from gitops_ds.core.decision import CreatePod
from gitops_ds.core.objects import DAEMONSET, NODE, POD, Key
from gitops_ds.daemonset import decide
from gitops_ds.daemonset.cache import WATCHED, Cache
from gitops_ds.daemonset.workqueue import WorkQueue
from tests.daemonset import world

YEAR, NODES, THERE = 365 * 86_400.0, 100_000, 100
KEY = Key("apps", "DaemonSet", "logging", "agent")


class Churn:
    """An autoscaled cluster: each node joins, gets a pod of each DaemonSet and a taint of its own,
    loses the pod, and leaves.
    """

    def __init__(self) -> None:
        self.cache, self.now, self.version = Cache(), world.START, 0
        for resource in WATCHED:
            self.cache.replace(resource, [world.daemonset()] if resource == DAEMONSET else [], "1")

    def publish(self, resource: Any, type: EventType, body: dict[str, Any]) -> None:
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self.cache.apply(resource, type, body, str(self.version))

    def join(self, number: int) -> None:
        taint = [
            {
                "key": "DeletionCandidateOfClusterAutoscaler",
                "effect": "PreferNoSchedule",
                "value": str(number),
            }
        ]
        hold = [{"key": "startup", "effect": "NoSchedule", "value": str(number)}]
        self.publish(NODE, EventType.ADDED, world.node(f"node-{number}", taints=hold))
        self.publish(NODE, EventType.MODIFIED, world.node(f"node-{number}", taints=taint))

    def runs(self, number: int) -> None:
        for again in ("a", "b"):
            pod = {
                "metadata": {
                    "name": f"agent-{number}-{again}",
                    "namespace": "logging",
                    "uid": f"{number}-{again}",
                    "labels": {"app": "agent"},
                    "ownerReferences": [world.OWNER],
                },
                "spec": {"nodeName": f"node-{number}"},
                "status": {"phase": "Failed"},
            }
            self.publish(POD, EventType.ADDED, pod)
            if number % 500 == 0:
                seen = self.cache.observe(KEY, self.now)
                assert seen is not None
                self.cache.remember(seen.daemonset, decide.decide(seen))
            self.publish(POD, EventType.DELETED, pod)

    def leave(self, number: int) -> None:
        self.publish(NODE, EventType.DELETED, world.node(f"node-{number}"))

    def run(self, first: int, last: int) -> None:
        for number in range(first, last):
            self.now += YEAR / NODES
            self.join(number)
            self.runs(number)
            if number >= THERE:
                self.leave(number - THERE)


@pytest.mark.slow
def test_a_year_of_a_hundred_thousand_autoscaled_nodes_leaves_nothing_behind() -> None:
    churn = Churn()
    churn.run(0, 2_000)
    before = reachable(churn.cache)
    churn.run(2_000, NODES)
    seen = churn.cache.observe(KEY, churn.now)
    assert seen is not None
    assert (len(seen.nodes), len(seen.pods)) == (THERE, 0)
    assert len(seen.vanished) <= THERE
    assert len(seen.backoffs) <= THERE
    assert reachable(churn.cache) <= before + 10
    assert any(isinstance(action, CreatePod) for action in decide.decide(seen).actions)


def reachable(root: object) -> int:
    """How many objects hang on this one, without classes, functions and modules."""
    seen: dict[int, object] = {}
    waiting = [root]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type | FunctionType | MethodType | ModuleType):
            continue
        seen[id(one)] = one
        waiting += gc.get_referents(one)
    return len(seen)


def test_the_queue_forgets_removed_keys() -> None:
    queue: WorkQueue[int] = WorkQueue()
    for number in range(100_000):
        queue.add(number, float(number))
        assert queue.take(float(number)) == number
        queue.forget(number)
        queue.done(number, float(number))
    assert len(queue) == 0
    assert reachable(queue) < 500
