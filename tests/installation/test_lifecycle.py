"""The service's own life: it manages itself, is upgraded, and is deleted; no agent's pod
restarts.
"""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import gitops_ds
from tests import controlplane, gitservers
from tests.cluster import program
from tests.installation import rights, scenes
from tests.installation.rights import NAMESPACE, NOTHING_AMISS, PATIENCE
from tests.plan.world import daemonset
from tests.service import test_uninstall
from tests.service.test_service import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.controlplane,
    pytest.mark.system,
    pytest.mark.xdist_group("rights"),
]

# What a version from before there was an election wrote under powers full, after two commits:
# objects as it applied them, revisions and pods as it made them (with UID and REPOSITORY where
# those were), and its state.
BEFORE = Path(__file__).parent / "written_before.json"
IMAGE = f"gitops-ds:{gitops_ds.__version__}"
CORE = "/api/v1/namespaces"


def pods(plane: controlplane.ControlPlane, space: str) -> dict[str, str]:
    """Their uids, and the image that each runs."""
    items = plane.request("GET", f"{CORE}/{space}/pods")["items"]
    return {pod["metadata"]["uid"]: pod["spec"]["containers"][0]["image"] for pod in items}


def restored(plane: controlplane.ControlPlane, upstream: gitservers.Upstream) -> None:
    """The cluster as the version before left it, and the repository that it followed."""
    fixture = json.loads(BEFORE.read_text().replace("REPOSITORY", str(upstream.path)))
    for one in fixture["commits"]:
        assert upstream.commit(one["files"], one["message"]) == one["id"]
    applied = scenes.documents(*fixture["applied"])
    plane.kubectl("apply", "--server-side", "--field-manager=gitops-ds", "-f", "-", stdin=applied)
    until(
        lambda: scenes.live(plane, f"{CORE}/fleet/serviceaccounts/default") is not None,
        lambda: "no account for pods",
        PATIENCE,
    )
    uid = plane.request("GET", f"{scenes.APPS}/fleet/daemonsets/agent")["metadata"]["uid"]
    made = [json.loads(json.dumps(body).replace('"UID"', f'"{uid}"')) for body in fixture["made"]]
    plane.kubectl("create", "-f", "-", stdin=scenes.documents(*made))
    metadata = {
        "namespace": NAMESPACE,
        "name": scenes.STATE,
        "labels": {"app.kubernetes.io/managed-by": "gitops-ds"},
    }
    data = base64.b64encode(gzip.compress(json.dumps(fixture["state"]).encode())).decode()
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "binaryData": {"state.json.gz": data},
    }
    plane.request("POST", f"{CORE}/{NAMESPACE}/configmaps", body)


def test_neither_an_upgrade_nor_uninstall_restarts_a_pod(
    tmp_path: Path, plane_for_deploy: controlplane.ControlPlane
) -> None:
    plane, upstream = plane_for_deploy, gitservers.Upstream(tmp_path / "fleet")
    rights.installed(plane, tmp_path / "overlay", "full")
    restored(plane, upstream)
    before = pods(plane, "fleet")
    assert list(before.values()) == ["registry.example.com/agent:2"] * 3

    def known() -> tuple[Any, list[str]]:
        body = plane.request("GET", f"{scenes.APPS}/fleet/daemonsets/agent")
        items = plane.request("GET", f"{scenes.APPS}/fleet/controllerrevisions")["items"]
        return (body["metadata"]["generation"], body["spec"]), sorted(
            item["metadata"]["name"] for item in items
        )

    was = known()
    with rights.service(plane, tmp_path / "run", "full", scenes.following(upstream)) as service:
        assert scenes.a_pass(plane, service).endswith("is applied: 0 written")
        # Its revision is the one that pods of the new version are of.
        plane.add_nodes([controlplane.node("node-new")])
        program.rolled_out(plane, "fleet", "agent")
        program.eventually(lambda: pods(plane, "fleet"), lambda body: len(body) == 4, PATIENCE)
        service.stop_the_leader()
        scenes.a_pass(plane, service)
    now = pods(plane, "fleet")
    assert (known(), before.items() <= now.items(), set(now.values())) == (
        was,
        True,
        set(before.values()),
    )

    done = test_uninstall.program(plane, NAMESPACE, "uninstall", "--yes")
    assert done.code == 0, done.err
    assert (known(), pods(plane, "fleet")) == (was, now)
    left = plane.kubectl("-n", NAMESPACE, "get", "leases,daemonsets", "-o", "name")
    assert left == ""
    assert "gitops-ds-" not in plane.kubectl("-n", NAMESPACE, "get", "configmaps", "-o", "name")


def test_the_service_manages_its_own_deployment(
    tmp_path: Path, plane: controlplane.ControlPlane
) -> None:
    parts = ("rights/rbac", "rights/itself")
    rights.installed(plane, tmp_path / "overlay", "pace", parts[0])
    proven = rights.granted(plane)
    since = rights.installed(plane, tmp_path / "overlay", "pace", *parts)
    own = objects_of(plane, tmp_path / "overlay")
    program.eventually(lambda: running(plane), lambda value: len(value) == 2, PATIENCE)
    before = running(plane)
    agent = scenes.documents(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "own"}},
        daemonset("agent", namespace="own"),
    )
    upstream = gitservers.Upstream(tmp_path / "fleet")
    upstream.commit({"agent.json": agent, "gitops-ds.json": scenes.documents(*own)})
    with rights.service(
        plane, tmp_path / "run", "pace", scenes.following(upstream, allow={"itself": True})
    ) as service:
        service.wait_for_log("updated Deployment gitops-ds/gitops-ds")
        service.wait_for_log("created DaemonSet own/agent")
        program.rolled_out(plane, "own", "agent")
        assert running(plane) == before
        agents = pods(plane, "own")

        rest = [
            body
            for body in own
            if body["kind"] not in ("PodDisruptionBudget", "ResourceQuota", "FlowSchema")
        ]
        upstream.commit(
            {"gitops-ds.json": scenes.documents(*rest).replace(IMAGE, "gitops-ds:next")}
        )
        service.wait_for_log("deleted ResourceQuota")
        program.eventually(
            lambda: set(running(plane).values()),
            lambda value: value == {"gitops-ds:next"},
            PATIENCE,
        )
        upstream.commit({"gitops-ds.json": scenes.documents(*own)})
        service.wait_for_log("created ResourceQuota")
        program.eventually(
            lambda: set(running(plane).values()), lambda value: value == {IMAGE}, PATIENCE
        )
        assert pods(plane, "own") == agents
    assert rights.judge(plane, since, proven) == NOTHING_AMISS


def objects_of(plane: controlplane.ControlPlane, overlay: Path) -> list[dict[str, Any]]:
    """The objects of an install, as a user adds them to a repository: without the policies that
    limit the service.
    """
    return [
        body
        for body in YAML(typ="safe").load_all(plane.kubectl("kustomize", str(overlay)))
        if body and not body["kind"].startswith("ValidatingAdmissionPolicy")
    ]


def running(plane: controlplane.ControlPlane) -> dict[str, str]:
    """The service's own pods that are to stay."""
    items = plane.request("GET", f"{CORE}/{NAMESPACE}/pods")["items"]
    return {
        pod["metadata"]["uid"]: pod["spec"]["containers"][0]["image"]
        for pod in items
        if "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] == "Running"
    }
