"""With the component startup-taints the service may change the startup taints of nodes, and nothing
else about them.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.core.errors import Invalid
from gitops_ds.core.objects import NODE
from gitops_ds.core.startup_taints import OWN
from gitops_ds.kube.client import connect
from gitops_ds.kube.client.connect import Connection
from tests import controlplane, gitservers
from tests.installation import rights, scenes
from tests.installation.rights import NOTHING_AMISS, PATIENCE
from tests.plan.world import daemonset
from tests.service.test_service import until

SPACE = "joining"
OWN_TAINT = {"key": OWN.key, "effect": OWN.effect}
FOREIGN = {"key": "example.com/foreign", "effect": "NoSchedule"}


def joins(plane: controlplane.ControlPlane, name: str) -> None:
    plane.add_nodes([controlplane.node(name, taints=[FOREIGN, OWN_TAINT])])


def taints(plane: controlplane.ControlPlane, name: str) -> list[dict[str, Any]]:
    found = plane.request("GET", f"/api/v1/nodes/{name}")["spec"].get("taints") or []
    return [{key: one[key] for key in ("key", "effect")} for one in found]


@pytest.mark.slow
@pytest.mark.controlplane
@pytest.mark.system
@pytest.mark.xdist_group("rights")
def test_the_service_removes_startup_taints_and_may_change_nothing_else(
    tmp_path: Path, plane: controlplane.ControlPlane
) -> None:
    rights.installed(plane, tmp_path / "overlay", "pace")
    proven = rights.granted(plane)
    since = rights.installed(plane, tmp_path / "overlay", "pace", "rights/startup-taints")
    assert set(map(str, rights.granted(plane) - proven)) == {"patch nodes"}
    plane.kubectl("create", "namespace", SPACE)
    upstream = gitservers.Upstream(tmp_path / "fleet")
    agent = daemonset("agent", scenes.image(1), SPACE)
    agent["spec"]["template"]["spec"]["tolerations"] = [{"operator": "Exists"}]
    agent["metadata"]["annotations"] = {names.REQUIRED_FOR_WORK: "true"}
    upstream.commit({"agent.json": json.dumps(agent)})
    settings = {**scenes.following(upstream), "startupTaints": {}}
    with rights.service(plane, tmp_path / "run", "pace", settings) as service:
        service.wait_for_log("created DaemonSet joining/agent")
        joins(plane, "node-joins")
        until(lambda: taints(plane, "node-joins") == [FOREIGN], service.log, PATIENCE)
        service.wait_for_log("Node node-joins: AgentsReady")
    assert rights.doctor(tmp_path / "run")["rights to remove startup taints"] == "ok"
    assert rights.judge(plane, since, proven) == NOTHING_AMISS
    asyncio.run(refusals(rights.kubeconfig(plane, tmp_path / "run")))
    plane.kubectl("delete", "node", "node-joins")
    plane.kubectl("delete", "namespace", SPACE, "--wait=false")
    for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
        plane.kubectl("delete", kind, "gitops-ds-startup-taints")


# One of each field of a node that the API server stores and that may be changed.
OTHER_FIELDS: tuple[dict[str, Any], ...] = (
    {"spec": {"unschedulable": True}},
    {"spec": {"providerID": "other://node"}},
    {"spec": {"podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"]}},
    {"metadata": {"labels": {"pool": "other"}}},
    {"metadata": {"labels": None}},
    {"metadata": {"annotations": {"a": "b"}}},
    {"metadata": {"finalizers": ["example.com/kept"]}},
    {"metadata": {"generateName": "node-"}},
)


async def refusals(account: Path) -> None:
    """The patches that the policy refuses, and the ones that it permits, by the account itself."""
    async with connect.writing(Connection(str(account), writes=True)) as cluster:
        for patch, refused in (
            ({"spec": {"taints": [FOREIGN, OWN_TAINT]}}, ""),
            ({"spec": {"taints": [FOREIGN]}}, ""),
            ({"spec": {"taints": [OWN_TAINT]}}, "may be removed"),
            ({"spec": {"taints": [FOREIGN, {**OWN_TAINT, "key": "other"}]}}, "may be added"),
            ({"spec": {"taints": [FOREIGN, {**OWN_TAINT, "effect": "NoExecute"}]}}, "may be added"),
            *((patch, "nothing but the taints") for patch in OTHER_FIELDS),
        ):
            message = ""
            try:
                await cluster.patch(NODE, "", "node-joins", patch)
            except Invalid as error:
                message = str(error)
            assert bool(message) is bool(refused), (patch, message)
            assert refused in message, (patch, message)
