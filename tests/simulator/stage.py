"""The tools of the tests of the simulated cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from gitops_ds.core.objects import POD, Body
from gitops_ds.daemonset import pod_changes
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import virtual_time

WELL = simulator.Behaviour()

Scene = Callable[[simulator.SimulatedCluster], Awaitable[None]]


@asynccontextmanager
async def cluster(
    nodes: int = 0, behaviour: simulator.Behaviour = WELL, **options: Any
) -> AsyncIterator[simulator.SimulatedCluster]:
    async with simulator.SimulatedCluster(behaviour, **options) as made:
        made.add_nodes(simulator.NodeSpec(f"node-{i}") for i in range(nodes))
        yield made


def play(
    scene: Scene, nodes: int = 0, behaviour: simulator.Behaviour = WELL, **options: Any
) -> None:
    """The scene in virtual time."""

    async def whole() -> None:
        async with cluster(nodes, behaviour, **options) as made:
            await scene(made)

    virtual_time.run(whole())


def pod(name: str, node: str = "", image: str = "agent:1", **spec: Any) -> dict[str, Any]:
    """A pod as a DaemonSet's: bound to a node by its name."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "containers": [{"name": "c", "image": image}],
            **({"affinity": pod_changes.pinned_to({}, node)} if node else {}),
            **spec,
        },
    }


async def phase(of: simulator.SimulatedCluster, name: str) -> tuple[str, bool, str]:
    """Phase, readiness, and why the first container waits."""
    status = (await of.get(POD, "default", name))["status"]
    container: Body = next(iter(status.get("containerStatuses", ())), {})
    waiting = container.get("state", {}).get("waiting", {})
    return status["phase"], ready(status), waiting.get("reason", "")


def ready(status: Body) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", ()))
