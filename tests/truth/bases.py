"""The manifests to mutate: those of well-known projects, and random DaemonSets with rarely used
fields.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from gitops_ds.core.objects import group_of
from gitops_ds.kube.apimachinery import builtin_resources
from gitops_ds.yaml import parser

Body = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
FIELDS = Path(__file__).with_name("fields.yaml")
REAL, EXAMPLES = ROOT.parent / "shared" / "real-manifests", ROOT / "examples-repo" / "agents"
COMPANIONS = frozenset(
    (
        "ConfigMap",
        "ServiceAccount",
        "Service",
        "Role",
        "ClusterRole",
        "RoleBinding",
        "ClusterRoleBinding",
        "PriorityClass",
    )
)


def real() -> tuple[list[Body], list[Body]]:
    """The DaemonSets of well-known projects, and what else their agents carry; all in the namespace
    `default`.
    """
    daemonsets: list[Body] = []
    companions: list[Body] = []
    for body in _objects():
        resource = builtin_resources.RESOURCES.get((group_of(body), str(body.get("kind"))))
        if (
            resource is None
            or resource.api_version != body.get("apiVersion")
            or len(str(body)) > 60_000
        ):
            continue
        if resource.namespaced:
            body["metadata"]["namespace"] = "default"
        if body["kind"] == "DaemonSet":
            daemonsets.append(body)
        elif body["kind"] in COMPANIONS:
            companions.append(body)
    return daemonsets, companions


def files() -> list[Path]:
    """Manifests of well-known projects that lie beside this clone; the agents of examples-repo
    where there are none.
    """
    manifests = [path for path in REAL.glob("*") if path.suffix in (".yaml", ".json")]
    return sorted(manifests or EXAMPLES.rglob("*.yaml"))


def _objects() -> Iterator[Body]:
    for file in files():
        for document in parser.read(file.name, file.read_bytes()).documents:
            if isinstance(document.value, dict) and isinstance(
                document.value.get("metadata"), dict
            ):
                for body in (
                    document.value["items"]
                    if document.value.get("kind") == "List"
                    else [document.value]
                ):
                    if body.get("metadata", {}).get("name"):
                        yield body


(_FIELDS,) = (
    document.value for document in parser.read(FIELDS.name, FIELDS.read_bytes()).documents
)


def generated(random: Random) -> Body:
    """A DaemonSet with some fields out of all those above, right in itself but for combinations of
    chance.
    """
    volumes = [
        {"name": f"v{number}", **copy.deepcopy(one)}
        for number, one in enumerate(random.sample(_FIELDS["volumes"], random.randint(0, 5)))
    ]
    containers = [
        _container(random, f"c{number}", volumes) for number in range(random.choice((1, 1, 2)))
    ]
    pod: Body = {"containers": containers, **_some(random, "pod", 0.2)}
    if pod.get("hostNetwork"):  # they would be the node's
        pod.get("securityContext", {}).pop("sysctls", None)
    if volumes:
        pod["volumes"] = volumes
    if random.random() < 0.4:
        pod["initContainers"] = [_init(random, volumes)]
    spec: Body = {
        "selector": {"matchLabels": {"app": "agent"}},
        "template": {
            "metadata": {
                "labels": {"app": "agent", "tier": "node"},
                "annotations": {"example.com/a": "b"},
            },
            "spec": pod,
        },
    }
    if random.random() < 0.5:
        spec["updateStrategy"] = copy.deepcopy(random.choice(_FIELDS["strategies"]))
    if random.random() < 0.3:
        spec["minReadySeconds"] = random.choice((0, 10))
        spec["revisionHistoryLimit"] = random.choice((0, 10))
    metadata = {
        "name": "agent",
        "namespace": "default",
        "labels": {"app.kubernetes.io/name": "agent"},
        "annotations": {"a": "b"},
    }
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec}


def _some(random: Random, owner: str, share: float) -> Body:
    return {
        name: copy.deepcopy(random.choice(values))
        for name, values in _FIELDS[owner].items()
        if random.random() < share
    }


def _container(random: Random, name: str, volumes: list[Body]) -> Body:
    container = {
        "name": name,
        "image": "registry.example.com/agent:1.2.3",
        **_some(random, "container", 0.3),
    }
    mounted = [volume for volume in volumes if random.random() < 0.7]
    if mounted:
        container["volumeMounts"] = [
            {"name": one["name"], "mountPath": f"/mnt/{one['name']}"} for one in mounted
        ]
        extra = random.choice(
            ({}, {"readOnly": True}, {"subPath": "a/b"}, {"mountPropagation": "HostToContainer"})
        )
        container["volumeMounts"][0].update(extra)
    return container


def _init(random: Random, volumes: list[Body]) -> Body:
    container = _container(random, "init", volumes)
    if random.random() < 0.5:
        return {**container, "restartPolicy": "Always"}
    return {
        name: value
        for name, value in container.items()
        if not name.endswith("Probe") and name != "lifecycle"
    }
