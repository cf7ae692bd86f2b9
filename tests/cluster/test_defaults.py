"""What we think an API server makes of an object is what it makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gitops_ds.core.objects import NAMESPACE
from gitops_ds.deploy.pipeline import prepare
from gitops_ds.kube.apimachinery import builtin_resources, defaults
from gitops_ds.ownership import diff
from tests.cluster.conftest import Counting, Play
from tests.plan import world
from tests.plan.world import daemonset

FOLDER = Path(__file__).parents[2].parent / "shared/real-manifests"
FILES = sorted(p.name for p in FOLDER.glob("*.*") if p.suffix in (".yaml", ".yml", ".json"))

pytestmark = pytest.mark.controlplane

NASTY: dict[str, Any] = {
    "initContainers": [
        {
            "name": "i",
            "image": "a@sha256:" + "0" * 64,
            "restartPolicy": "Always",
            "startupProbe": {"grpc": {"port": 1}},
        }
    ],
    "containers": [
        {
            "name": "agent",
            "image": "registry.example.com:5000/agent",
            "ports": [
                {"containerPort": 80},
                {"containerPort": 53, "protocol": "UDP", "hostPort": 0},
            ],
            "resources": {
                "limits": {"cpu": "0.1", "memory": "1024Mi"},
                "requests": {"cpu": 0.0001, "ephemeral-storage": "1e3"},
            },
            "livenessProbe": {"httpGet": {"port": "http"}, "timeoutSeconds": 0},
            "readinessProbe": {"tcpSocket": {"port": 80}, "initialDelaySeconds": 0},
            "env": [
                {"name": "EMPTY", "value": ""},
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            ],
            "volumeMounts": [{"name": "host", "mountPath": "/host", "readOnly": False}],
            "securityContext": {"privileged": False},
            "lifecycle": {"preStop": {"httpGet": {"port": 80}}},
        }
    ],
    "volumes": [
        {"name": "host", "hostPath": {"path": "/"}},
        {"name": "none"},
        {"name": "secret", "secret": {"secretName": "s"}},
        {"name": "map", "configMap": {"name": "m", "items": []}},
        {
            "name": "down",
            "downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.name"}}]},
        },
        {"name": "all", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
        {"name": "tmp", "emptyDir": {"sizeLimit": "2048Ki"}},
    ],
    "tolerations": [{"operator": "Exists", "tolerationSeconds": None}],
    "hostNetwork": False,
    "nodeSelector": {},
    "serviceAccount": "agent",
    "securityContext": None,
}


async def _disagreements(cluster: Counting, body: dict[str, Any]) -> list[str]:
    resource = builtin_resources.RESOURCES[
        str(body["apiVersion"]).partition("/")[0] if "/" in body["apiVersion"] else "", body["kind"]
    ]
    stored = (await cluster.dry_run(resource, body, manager="test")).body
    spec = {key: value for key, value in stored.items() if key not in ("metadata", "status")}
    ours = {
        key: value
        for key, value in defaults.defaulted(body).items()
        if key not in ("metadata", "status")
    }
    return [f"{change.path}: {change.old} -> {change.new}" for change in diff.compare(ours, spec)]


def test_every_default_of_a_pod_template_is_known(on_api_server: Play) -> None:
    async def scene(cluster: Counting, namespace: str) -> None:
        assert await _disagreements(cluster, daemonset(namespace=namespace, **NASTY)) == []
        for strategy in (
            {"type": "OnDelete"},
            {"rollingUpdate": {"maxUnavailable": "10%"}},
            {"rollingUpdate": None},
        ):
            body = daemonset(namespace=namespace)
            body["spec"]["updateStrategy"] = strategy
            assert await _disagreements(cluster, body) == []

    on_api_server(scene)


@pytest.mark.parametrize("name", FILES)
def test_the_daemonsets_of_a_real_manifest_are_stored_as_predicted(
    name: str, on_api_server: Play
) -> None:
    async def scene(cluster: Counting, namespace: str) -> None:
        prepared = prepare.prepare(
            world.snapshot({name: (FOLDER / name).read_bytes()}), namespace=namespace
        )
        for key, manifest in prepared.bundle.manifests.items():
            if prepared.deployable and (key.group, key.kind) == ("apps", "DaemonSet"):
                body = {
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": {"name": key.namespace},
                }
                await cluster.apply(NAMESPACE, body, manager="test")
                assert await _disagreements(cluster, dict(manifest.body)) == []

    on_api_server(scene)
