"""Agents in a repository, and their objects in a cluster."""

from __future__ import annotations

import json
from typing import Any

from tests import controlplane
from tests.plan.world import daemonset


def image(tag: int) -> str:
    return f"registry.example.com/agent:{tag}"


def agents(space: str, count: int, tag: int = 1) -> dict[str, str]:
    """Files of a repository. Nothing waits for their pods to end: no kubelet runs."""
    bodies = [daemonset(f"agent-{n:02d}", image(tag), space) for n in range(count)]
    for body in bodies:
        body["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 0
    return {f"{body['metadata']['name']}.json": json.dumps(body) for body in bodies}


def there(plane: controlplane.ControlPlane, space: str) -> dict[str, Any]:
    """The DaemonSets by name."""
    items = plane.request("GET", f"/apis/apps/v1/namespaces/{space}/daemonsets")["items"]
    return {item["metadata"]["name"]: item for item in items}


def images(plane: controlplane.ControlPlane, space: str) -> dict[str, str]:
    running_agents = there(plane, space)
    return {
        name: body["spec"]["template"]["spec"]["containers"][0]["image"]
        for name, body in running_agents.items()
    }
