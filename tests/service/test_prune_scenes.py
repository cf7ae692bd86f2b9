"""Deleting on a real API server, with its garbage collector: refused, approved by hash, one agent
after the other.
"""

from __future__ import annotations

import asyncio
import os

import pytest

from gitops_ds.client import config, rest
from gitops_ds.plan.options import ApplyOptions, Guards
from tests import controlplane
from tests.plan.world import World, config_map, daemonset
from tests.service.test_service import until

pytestmark = [
    pytest.mark.controlplane,
    pytest.mark.system,
]


def test_agents_go_by_approval_one_after_the_other_and_their_pods_with_them(
    control_plane: controlplane.ControlPlane,
) -> None:
    space = f"prune-{os.getpid()}"
    control_plane.kubectl("create", "namespace", space)
    kept = {"kept.yaml": config_map("kept", space)}
    files = {
        **kept,
        **{f"{name}.yaml": daemonset(name, namespace=space) for name in ("one", "two")},
    }

    def pods() -> int:
        return len(control_plane.items(space, "pods"))

    async def whole() -> None:
        async with rest.HttpCluster(config.access(str(control_plane.kubeconfig), None)) as cluster:
            world = World(cluster, owner=space, state_namespace=space)
            await world.apply(files)
            until(lambda: pods() == 6, lambda: "no pods")
            refused = await world.apply(
                kept, "second", ApplyOptions(Guards(prune=True), patience=0)
            )
            assert (refused.guards, refused.writes, pods()) == (
                ["too-many-deletes", "share-of-nodes"],
                0,
                6,
            )
            options = ApplyOptions(Guards(prune=True), approved=refused.plan.hash, patience=120)
            done = await world.apply(kept, "third", options)
            assert len(done.written) == 2
            assert done.refusals == ()
            until(lambda: pods() == 0, lambda: "pods are left")

    asyncio.run(whole())
