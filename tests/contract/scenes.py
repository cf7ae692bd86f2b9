"""The tools of the scenes of the contract: a cluster, a namespace, and bodies for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gitops_ds.core.cluster import ApplyResult, Cluster
from gitops_ds.core.objects import CONFIG_MAP, DAEMONSET, Body, Resource

PATIENCE = 120.0  # the time limit in seconds for an action of a controller


@dataclass(frozen=True)
class Stage:
    cluster: Cluster
    namespace: str

    def daemonset(self, name: str = "agent", image: str = "nginx:1", **spec: Any) -> dict[str, Any]:
        labels = {"app": name}
        container = {
            "name": "c",
            "image": image,
            "ports": [{"containerPort": 80}],
            "env": [{"name": "A", "value": "1"}],
        }
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        return {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": name, "namespace": self.namespace, "labels": labels},
            "spec": {"selector": {"matchLabels": labels}, "template": template, **spec},
        }

    def config_map(
        self, name: str, data: Mapping[str, str] | None = None, **metadata: Any
    ) -> dict[str, Any]:
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": self.namespace, **metadata},
        }
        return {**body, "data": dict(data)} if data is not None else body

    def gadgets(self) -> tuple[Resource, dict[str, Any]]:
        """A custom kind of this namespace's own group, and its definition."""
        group = f"{self.namespace}.example.com"
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        served = {"name": "v1", "served": True, "storage": True}
        definition = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"gadgets.{group}"},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {
                    "plural": "gadgets",
                    "singular": "gadget",
                    "kind": "Gadget",
                    "listKind": "GadgetList",
                },
                "versions": [
                    {
                        **served,
                        "schema": {
                            "openAPIV3Schema": {"type": "object", "properties": {"spec": schema}}
                        },
                    }
                ],
            },
        }
        return Resource(group, "v1", "Gadget", "gadgets", namespaced=True), definition

    async def apply(
        self, body: Body, manager: str = "one", force: bool = False, dry_run: bool = False
    ) -> ApplyResult:
        resource = DAEMONSET if body["kind"] == "DaemonSet" else CONFIG_MAP
        send = self.cluster.dry_run if dry_run else self.cluster.apply
        return await send(resource, body, manager=manager, force=force)


Scene = Callable[[Stage], Awaitable[None]]
Play = Callable[[Scene], None]


def version(body: Body) -> str:
    return str(body["metadata"]["resourceVersion"])


def owned_by(body: Body, manager: str) -> Any:
    """The fieldsV1 of a manager, or None."""
    return next(
        (
            e["fieldsV1"]
            for e in body["metadata"].get("managedFields", ())
            if e["manager"] == manager
        ),
        None,
    )


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    """Polls until the condition is true; fails at the time limit."""
    loop = asyncio.get_running_loop()
    end = loop.time() + PATIENCE
    while not await holds():
        assert loop.time() < end, "it did not come to be"
        await asyncio.sleep(0.05)
