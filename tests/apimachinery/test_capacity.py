"""What a pod takes of a node, and whether it fits."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core.decision import FreeCapacity
from gitops_ds.kube.apimachinery import capacity


def container(
    cpu: str = "", restart: str = "", ports: tuple[dict[str, Any], ...] = ()
) -> dict[str, Any]:
    asks = {"resources": {"requests": {"cpu": cpu}}} if cpu else {}
    return {**asks, **({"restartPolicy": restart} if restart else {}), "ports": list(ports)}


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        pytest.param(
            {"containers": [container("100m"), container("1")]},
            1100,
            id="containers run side by side",
        ),
        pytest.param(
            {"containers": [container("100m")], "initContainers": [container("2")]},
            2000,
            id="the largest before",
        ),
        pytest.param(
            {"containers": [container("3")], "initContainers": [container("2"), container("1")]},
            3000,
            id="each alone",
        ),
        pytest.param(
            {"containers": [container("1")], "initContainers": [container("500m", "Always")]},
            1500,
            id="a sidecar runs beside them",
        ),
        pytest.param(
            {
                "containers": [container("1")],
                "initContainers": [container("1", "Always"), container("2")],
            },
            3000,
            id="and beside the init containers after it",
        ),
        pytest.param(
            {
                "containers": [container("1")],
                "initContainers": [container("2"), container("1", "Always")],
            },
            2000,
            id="but not beside those before it",
        ),
        pytest.param(
            {"containers": [container("1")], "overhead": {"cpu": "250m"}},
            1250,
            id="with its runtime's overhead",
        ),
        pytest.param({"containers": [container("0.0001")]}, 1, id="rounded up"),
    ],
)
def test_the_requests_of_a_pod(spec: dict[str, Any], cpu: int) -> None:
    assert capacity.requested(spec) == {"cpu": cpu, "pods": 1000}


PORT = {"containerPort": 80, "hostPort": 8080}


@pytest.mark.parametrize(
    ("spec", "room", "why"),
    [
        pytest.param(
            {"containers": [container("1")]},
            FreeCapacity({"cpu": 1000, "pods": 1000}),
            "",
            id="just enough",
        ),
        pytest.param(
            {"containers": [container("1")]},
            FreeCapacity({"cpu": 999, "pods": 1000}),
            "Insufficient cpu",
            id="not quite",
        ),
        pytest.param(
            {"containers": [container()]}, FreeCapacity({"pods": 0}), "Too many pods", id="full"
        ),
        pytest.param(
            {"containers": [container("1")]},
            FreeCapacity({}),
            "",
            id="a node without allocatable resources",
        ),
        pytest.param(
            {"containers": [{"resources": {"requests": {"example.com/gpu": "1"}}}]},
            FreeCapacity({"cpu": 1000}),
            "Insufficient example.com/gpu",
            id="a device that the node lacks",
        ),
        pytest.param(
            {"containers": [container(ports=(PORT,))]},
            FreeCapacity({}, (("TCP", "127.0.0.1", 8080),)),
            "node(s) didn't have free ports for the requested pod ports",
            id="a port of all addresses",
        ),
        pytest.param(
            {"containers": [container(ports=({**PORT, "hostIP": "10.0.0.1"},))]},
            FreeCapacity(
                {}, (("TCP", "127.0.0.1", 8080), ("UDP", "0.0.0.0", 8080), ("TCP", "0.0.0.0", 80))
            ),
            "",
            id="the port of another address, protocol or number",
        ),
        pytest.param(
            {"hostNetwork": True, "containers": [container(ports=({"containerPort": 9100},))]},
            FreeCapacity({}, (("TCP", "0.0.0.0", 9100),)),
            "node(s) didn't have free ports for the requested pod ports",
            id="on the host's network each port is the host's",
        ),
    ],
)
def test_whether_it_fits(spec: dict[str, Any], room: FreeCapacity, why: str) -> None:
    assert capacity.misfit(capacity.requested(spec), tuple(capacity.host_ports(spec)), room) == why
