"""Every scene of the contract is played on the simulated cluster and on a real API server: their
common behaviour is the contract.
"""

from __future__ import annotations

import asyncio
import itertools

import pytest

from gitops_ds.core.objects import NAMESPACE
from gitops_ds.kube.client import config, rest
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import virtual_time
from tests import controlplane
from tests.contract.scenes import Play, Scene, Stage

_numbers = itertools.count()


REAL = (pytest.mark.controlplane, pytest.mark.xdist_group("control_plane_without_daemonsets-0"))


@pytest.fixture(params=["simulated", pytest.param("real", marks=REAL)])
def play(request: pytest.FixtureRequest) -> Play:
    """Plays a scene in its own namespace, which is deleted afterwards."""
    if request.param == "simulated":
        return lambda scene: virtual_time.run(_simulated(scene))
    plane: controlplane.ControlPlane = request.getfixturevalue("control_plane_without_daemonsets")
    return lambda scene: asyncio.run(_real(plane, scene))


async def _simulated(scene: Scene) -> None:
    async with simulator.SimulatedCluster() as cluster:
        await _on(Stage(cluster, "contract"), scene)


async def _real(plane: controlplane.ControlPlane, scene: Scene) -> None:
    where = config.access(str(plane.kubeconfig), None)
    async with rest.HttpCluster(where) as cluster:
        await _on(Stage(cluster, f"contract-{next(_numbers)}"), scene)


async def _on(stage: Stage, scene: Scene) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": stage.namespace}}
    await stage.cluster.create(NAMESPACE, body)
    await scene(stage)
