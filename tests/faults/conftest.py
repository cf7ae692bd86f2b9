"""A control plane that may be broken: an API server on which nothing acts by itself, with nodes
that have room.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests import controlplane

NODES = 3
_numbers = itertools.count()


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[controlplane.ControlPlane]:
    options = controlplane.Wanted(nodes=NODES, controllers=False, audit=True)
    made = controlplane.ControlPlane(tmp_path_factory.mktemp("plane"), options)
    try:
        made.start()
        room = {"cpu": "16", "memory": "64Gi", "pods": "250"}
        conditions = [{"type": "Ready", "status": "True"}]
        for n in range(NODES):
            status = {"status": {"allocatable": room, "capacity": room, "conditions": conditions}}
            made.request(
                "PATCH",
                f"/api/v1/nodes/node-{n:03d}/status",
                status,
                "application/merge-patch+json",
            )
        yield made
    finally:
        made.stop()


@pytest.fixture
def space(plane: controlplane.ControlPlane) -> Iterator[str]:
    """A namespace, empty again afterwards: a service with full powers acts in all."""
    name = f"faults-{next(_numbers)}"
    plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    plane.request(
        "POST", f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}}
    )
    yield name
    for kind in (
        "apis/apps/v1/namespaces/{}/daemonsets",
        "apis/apps/v1/namespaces/{}/controllerrevisions",
        "api/v1/namespaces/{}/pods",
    ):
        plane.request("DELETE", f"/{kind.format(name)}?gracePeriodSeconds=0")
