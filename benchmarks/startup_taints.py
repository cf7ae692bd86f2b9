"""Startup taints of 5,000 nodes with ten required agents: the CPU of the decision for all of them
at a start, for one node that joins, and the requests of a node.

python -m benchmarks startup_taints; GITOPS_DS_BENCH_NODES (5000).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any, cast

from benchmarks import figures
from gitops_ds.core import names
from gitops_ds.core.cluster import Cluster, EventType
from gitops_ds.core.objects import CONTROLLER_REVISION, DAEMONSET, NODE, POD, Body
from gitops_ds.core.startup_taints import OWN, Enforce, StartupTaintPolicy
from gitops_ds.daemonset.cache import Cache
from gitops_ds.startup_taints.startup_taints import GitInputs, StartupInputs, StartupTaints
from tests.startup_taints.plain import in_git

NODES, AGENTS = int(os.environ.get("GITOPS_DS_BENCH_NODES", "5000")), 10
BORN, READY = "2027-01-15T08:00:00Z", "2027-01-15T08:00:30Z"
NOW = 1_800_000_600.0
TAINT = {"key": OWN.key, "effect": OWN.effect}
# Seconds of CPU, and milliseconds of a node.
BOUNDS = {"start": 3.0, "node": 3.0, "all": 3.0}


def daemonset(number: int) -> dict[str, Any]:
    labels = {"app": f"agent-{number}"}
    spec = {"tolerations": [{"operator": "Exists"}], "containers": [{"name": "a", "image": "a:1"}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": f"agent-{number}",
            "namespace": "agents",
            "uid": f"ds-{number}",
            "annotations": {names.REQUIRED_FOR_WORK: "true"},
        },
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def node(number: int, *, tainted: bool) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": BORN}
    name = f"node-{number}"
    return {
        "metadata": {"name": name, "uid": name, "creationTimestamp": BORN, "labels": {}},
        "spec": {"taints": [TAINT]} if tainted else {},
        "status": {"conditions": [ready]},
    }


def pod(agent: int, number: int) -> dict[str, Any]:
    owner = {"kind": "DaemonSet", "name": f"agent-{agent}", "uid": f"ds-{agent}"}
    name = f"agent-{agent}-{number}"
    return {
        "metadata": {
            "name": name,
            "namespace": "agents",
            "uid": name,
            "creationTimestamp": BORN,
            "labels": {"app": f"agent-{agent}", names.REVISION_HASH: "1"},
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {
            "nodeName": f"node-{number}",
            "containers": [{"name": "a", "image": "a:1"}],
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": READY}],
        },
    }


class _Nodes:
    """A cluster that only counts the patches of nodes."""

    def __init__(self) -> None:
        self.patches = 0

    async def patch(self, *_: Any, **__: Any) -> Body:
        self.patches += 1
        return {}


def _filled(*, tainted: bool, enforce: Enforce) -> tuple[Cache, StartupTaints, _Nodes]:
    cache, cluster = Cache(), _Nodes()
    inputs = StartupInputs(lambda: NOW, lambda _: None)
    startup = StartupTaints(cast("Cluster", cluster), cache, inputs)
    required = [in_git(daemonset(number)) for number in range(AGENTS)]
    git = GitInputs(lambda: True, lambda: required)
    startup.enable(StartupTaintPolicy(enforce=enforce), git)
    cache.replace(DAEMONSET, [daemonset(number) for number in range(AGENTS)], "1")
    cache.replace(CONTROLLER_REVISION, [], "1")
    cache.replace(NODE, [node(number, tainted=tainted) for number in range(NODES)], "1")
    cache.replace(POD, [pod(a, n) for n in range(NODES) for a in range(AGENTS)], "1")
    return cache, startup, cluster


async def _cpu(startup: StartupTaints, until: Callable[[], bool]) -> float:
    """Seconds of CPU until the condition holds and nothing is left to do."""
    before = time.process_time()
    task = asyncio.create_task(startup.run())
    startup.wake()
    while not until():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    task.cancel()
    return time.process_time() - before


def main() -> None:
    cache, startup, cluster = _filled(tainted=True, enforce=Enforce.BOOTSTRAP)
    spent = asyncio.run(_cpu(startup, lambda: cluster.patches == NODES))
    within = [figures.bounded(f"{NODES} nodes released", spent, "s", BOUNDS["start"])]
    print(f"requests of a node: {cluster.patches / NODES:.0f}", flush=True)

    cache, startup, cluster = _filled(tainted=False, enforce=Enforce.BOOTSTRAP)
    asyncio.run(_cpu(startup, lambda: True))
    spent = 0.0
    for number in range(100):
        cache.apply(NODE, EventType.ADDED, node(NODES + number, tainted=True), "2")
        for agent in range(AGENTS):
            cache.apply(POD, EventType.ADDED, pod(agent, NODES + number), "2")
        began = time.process_time()
        changes = startup.due_changes()
        spent += (time.process_time() - began) / 100
        assert len(changes) == 1
    within.append(figures.bounded("a node that joins", 1000 * spent, "ms", BOUNDS["node"]))

    _, startup, cluster = _filled(tainted=False, enforce=Enforce.CONTINUOUS)
    spent = asyncio.run(_cpu(startup, lambda: True))
    within.append(figures.bounded("all nodes, continuous", spent, "s", BOUNDS["all"]))
    assert all(within)
