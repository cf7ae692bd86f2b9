"""Accounts on a real API server: RBAC decides what a repository reaches, and the audit log names
both.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.kube.client import config, rest
from gitops_ds.ownership.options import ApplyOptions, Guards
from gitops_ds.ownership.permissions import Impersonation
from tests import controlplane
from tests.plan.world import World, config_map, daemonset

pytestmark = [pytest.mark.controlplane, pytest.mark.system]
ASKED = ApplyOptions(
    Guards(prune=True, share=1.0),
    patience=0,
    impersonation=Impersonation(service_account="deployer"),
)
RIGHTS = [
    {
        "apiGroups": ["apps"],
        "resources": ["daemonsets"],
        "verbs": ["get", "create", "patch", "delete"],
    },
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "patch"]},
]


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[controlplane.ControlPlane]:
    plane = controlplane.ControlPlane(
        tmp_path_factory.mktemp("audited"), controlplane.Wanted(controllers=False, audit=True)
    )
    try:
        yield plane.start()
    finally:
        plane.stop()


def granted(plane: controlplane.ControlPlane, space: str, rules: list[dict[str, Any]]) -> None:
    """A namespace whose account `deployer` may do just that."""
    group = "rbac.authorization.k8s.io"
    metadata = {"name": "deployer", "namespace": space}
    subject = {"kind": "ServiceAccount", "name": "deployer", "namespace": space}
    role = {"apiGroup": group, "kind": "Role", "name": "deployer"}
    objects = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": role,
            "subjects": [subject],
        },
    ]
    plane.kubectl("apply", "-f", "-", stdin="\n---\n".join(map(json.dumps, objects)))


def written(log: Path, space: str) -> list[dict[str, Any]]:
    """The audit log's writes of DaemonSets and ConfigMaps in a namespace."""
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    return [
        entry
        for entry in entries
        if (entry.get("objectRef") or {}).get("namespace") == space
        and entry["objectRef"].get("resource") in ("daemonsets", "configmaps")
        and entry["verb"] in ("create", "patch", "update", "delete")
        and entry["objectRef"].get("name") != "kube-root-ca.crt"
    ]


def test_an_agent_has_exactly_the_rights_of_its_account(
    audited: controlplane.ControlPlane,
) -> None:
    granted(audited, "may", RIGHTS)
    granted(audited, "may-not", RIGHTS[1:])
    files = {
        "may.yaml": daemonset("agent", namespace="may"),
        "settings.yaml": config_map("settings", "may-not", a="1"),
        "not.yaml": daemonset("agent", namespace="may-not"),
        "system.yaml": daemonset("agent", namespace="kube-system"),
        "role.yaml": {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "all"},
            "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
        },
    }

    async def whole() -> None:
        async with rest.HttpCluster(config.access(str(audited.kubeconfig), None)) as cluster:
            world = World(cluster, state_namespace="default")
            planned = (await world.draft(files, options=ASKED)).plan
            done = await world.apply(files, options=ASKED)
            assert sorted(done.written) == [
                "create ConfigMap may-not/settings",
                "create DaemonSet may/agent",
            ]
            for refusals in (planned.refusals, done.refusals):
                refused = {str(refusal.key): refusal.message for refusal in refusals}
                assert refused.keys() == {
                    "DaemonSet may-not/agent",
                    "DaemonSet kube-system/agent",
                    "ClusterRole all",
                }
                for space in ("may-not", "kube-system"):
                    message = refused[f"DaemonSet {space}/agent"]
                    assert f"system:serviceaccount:{space}:deployer" in message
                    assert 'cannot patch resource "daemonsets"' in message
            again = await world.apply(files, "second", ASKED)
            assert again.writes == 0
            gone = await world.apply({"settings.yaml": files["settings.yaml"]}, "third", ASKED)
            assert gone.written == ("delete DaemonSet may/agent",)
            # Its account may not delete there.
            kept = await world.apply(
                {"none.yaml": config_map("settings", "may", a="1")}, "fourth", ASKED
            )
            assert [str(refusal.key) for refusal in kept.refusals] == ["ConfigMap may-not/settings"]

    asyncio.run(whole())
    for space in ("may", "may-not"):
        entries = written(audited.audit_log, space)
        assert entries
        assert {entry["impersonatedUser"]["username"] for entry in entries} == {
            f"system:serviceaccount:{space}:deployer"
        }
    in_system = written(audited.audit_log, "kube-system")
    ours = [entry for entry in in_system if entry["userAgent"].startswith("gitops-ds")]
    assert ours
    assert all(entry["responseStatus"]["code"] == 403 for entry in ours)
