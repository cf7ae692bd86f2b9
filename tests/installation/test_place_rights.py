"""With the powers pace the service may nominate nodes for its waiting pods, and may change nothing
else in the status of a pod.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.cluster import Cluster
from gitops_ds.core.errors import Invalid
from gitops_ds.core.objects import POD
from gitops_ds.kube.client import connect
from gitops_ds.kube.client.connect import Connection
from tests import controlplane
from tests.installation import rights

NOMINATED = {"status": {"nominatedNodeName": "node-0"}}
# One of each kind of field of a pod that a request for its status may change.
OTHER_FIELDS: tuple[dict[str, Any], ...] = (
    {"status": {"phase": "Failed"}},
    {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
    {"status": {"podIPs": [{"ip": "10.0.0.1"}], "podIP": "10.0.0.1"}},
    {"status": {"message": "a", "nominatedNodeName": "node-0"}},
    {"metadata": {"labels": {"app": "other"}}},
    {"metadata": {"labels": None}},
    {"metadata": {"annotations": {"a": "b"}}},
)


def pod(name: str, labels: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "agent", **labels}},
        "spec": {
            "schedulingGates": [{"name": "example.com/gate"}],
            "containers": [{"name": "agent", "image": "registry.example.com/agent:1"}],
        },
    }


@pytest.mark.slow
@pytest.mark.controlplane
@pytest.mark.system
@pytest.mark.xdist_group("rights")
def test_the_service_nominates_nodes_for_its_pods_and_may_change_nothing_else(
    tmp_path: Path, plane: controlplane.ControlPlane
) -> None:
    rights.installed(plane, tmp_path / "overlay", "pace")
    for name, labels in (("own", {names.ROLLOUT: "hash"}), ("foreign", {})):
        body = json.dumps(pod(name, labels))
        plane.kubectl("create", "--validate=false", "-f", "-", stdin=body)
    try:
        asyncio.run(refusals(rights.kubeconfig(plane, tmp_path)))
    finally:
        plane.kubectl("-n", "default", "delete", "pod", "own", "foreign")


async def refusals(account: Path) -> None:
    """The patches that the policy refuses, and the ones that it permits, by the account itself."""
    async with connect.writing(Connection(str(account), writes=True)) as cluster:
        # An API server follows policies by a watch: a new one is in force a moment later.
        async with asyncio.timeout(rights.PATIENCE):
            while not await refusal(cluster, "foreign", NOMINATED):
                await asyncio.sleep(0.1)
        for name, patch, refused in (
            ("own", NOMINATED, ""),
            ("own", NOMINATED, ""),
            ("own", {"status": {"nominatedNodeName": "node-1"}}, ""),
            ("foreign", NOMINATED, "only the status of pods of a staged rollout"),
            *(("own", patch, "nothing but nominatedNodeName") for patch in OTHER_FIELDS),
        ):
            message = await refusal(cluster, name, patch)
            assert bool(message) is bool(refused), (name, patch, message)
            assert refused in message, (name, patch, message)


async def refusal(cluster: Cluster, name: str, patch: dict[str, Any]) -> str:
    """The message of the policy that refuses a patch of a pod's status; empty if it is done."""
    try:
        await cluster.patch(POD, "default", name, patch, subresource="status")
    except Invalid as error:
        return str(error)
    return ""
