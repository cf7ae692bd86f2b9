"""A real API server takes every way to install, by a strict dry run and for real; the pods pass the
restricted standard.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import controlplane
from tests import installation as deploy
from tests.cluster import program

pytestmark = [pytest.mark.slow, pytest.mark.controlplane, pytest.mark.renderers]


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[controlplane.ControlPlane]:
    """With three nodes and without a DaemonSet controller; each test installs into an empty
    cluster.
    """
    server = controlplane.ControlPlane(
        tmp_path / "plane", controlplane.Wanted(nodes=3, daemonset_controller=False)
    )
    try:
        yield server.start()
    finally:
        server.stop()


def definition(kind: str, plural: str) -> dict[str, Any]:
    """A substitute for one of the Prometheus operator's definitions, which accepts everything."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": anything},
    }
    group = "monitoring.coreos.com"
    names = {"kind": kind, "plural": plural}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def everything(directory: Path) -> str:
    parts = (
        *(f"rights/{part.name}" for part in sorted((deploy.DEPLOY / "rights").iterdir())),
        "monitoring",
    )
    return deploy.kustomized(deploy.overlay(directory, "full", "log: {format: text}\n", *parts))


WAYS: dict[str, Callable[[Path], str]] = {
    "apply -k": lambda _: deploy.kustomized(deploy.DEPLOY),
    "one file": lambda _: (deploy.DEPLOY / "install.yaml").read_text(),
    "hostnetwork": lambda _: deploy.kustomized(deploy.DEPLOY / "overlays/hostnetwork"),
    "edge": lambda _: deploy.kustomized(deploy.DEPLOY / "overlays/edge"),
    "everything": everything,
    "chart": lambda _: deploy.templated(
        "--set",
        "createNamespace=true,monitoring.enabled=true,rights.secrets=true,rights.impersonation=true",
    ),
}


def test_a_strict_api_server_accepts_every_kind_of_install(
    tmp_path: Path, plane: controlplane.ControlPlane
) -> None:
    for kind, plural in (
        ("ServiceMonitor", "servicemonitors"),
        ("PrometheusRule", "prometheusrules"),
    ):
        plane.request(
            "POST",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            definition(kind, plural),
        )
        plane.kubectl("wait", "--for=condition=Established", f"crd/{plural}.monitoring.coreos.com")
    # a dry run creates none for later objects
    plane.kubectl("create", "namespace", "gitops-ds")
    for number, way in enumerate(WAYS.values()):
        manifests = way(tmp_path / str(number))
        for options in (("--dry-run=server",), ()):
            plane.kubectl(
                "apply",
                "--server-side",
                "--force-conflicts",
                *options,
                "--validate=strict",
                "-f",
                "-",
                stdin=manifests,
            )


def pods(plane: controlplane.ControlPlane) -> list[dict[str, Any]]:
    items = json.loads(plane.kubectl("-n", "gitops-ds", "get", "pods", "-o", "json"))["items"]
    return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]


def placed(plane: controlplane.ControlPlane, number: int) -> list[dict[str, Any]]:
    """The pods, when so many of them run."""
    return program.eventually(
        lambda: pods(plane),
        lambda value: [pod["status"]["phase"] for pod in value] == ["Running"] * number,
    )


def test_two_replicas_run_on_nodes_of_their_own_under_the_restricted_standard(
    plane: controlplane.ControlPlane,
) -> None:
    plane.kubectl("apply", "-k", str(deploy.DEPLOY))
    assert len({pod["spec"]["nodeName"] for pod in placed(plane, 2)}) == 2
    enforced = json.loads(plane.kubectl("get", "namespace", "gitops-ds", "-o", "json"))["metadata"][
        "labels"
    ]
    assert enforced["pod-security.kubernetes.io/enforce"] == "restricted"


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        (
            "/apis/coordination.k8s.io/v1/namespaces/gitops-ds/leases/gitops-ds",
            "gitops-ds-leader-election",
        ),
        ("/apis/coordination.k8s.io/v1/namespaces/default/leases/gitops-ds", "gitops-ds"),
        ("/apis/apps/v1/daemonsets", "gitops-ds"),
        ("/version", "gitops-ds"),
    ],
)
def test_requests_of_the_service_have_the_priority_of_controllers(
    path: str, schema: str, plane: controlplane.ControlPlane
) -> None:
    plane.kubectl("apply", "-k", str(deploy.DEPLOY))
    plane.token = plane.kubectl("-n", "gitops-ds", "create", "token", "gitops-ds").strip()
    uid = json.loads(plane.kubectl("get", "flowschema", schema, "-o", "json"))["metadata"]["uid"]
    program.eventually(lambda: matched(plane, path), lambda value: value == uid)


def matched(plane: controlplane.ControlPlane, path: str) -> str:
    """The UID of the FlowSchema that a request fell under, regardless of the answer."""
    request = urllib.request.Request(
        plane.url + path, headers={"Authorization": f"Bearer {plane.token}"}
    )
    try:
        reply = urllib.request.urlopen(
            request, context=ssl.create_default_context(cafile=str(plane.ca)), timeout=60
        )
    except urllib.error.HTTPError as error:
        reply = error
    with reply:
        return str(reply.headers["X-Kubernetes-PF-FlowSchema-UID"])


def test_without_a_pod_network_the_service_runs_on_the_host_network(
    plane: controlplane.ControlPlane,
) -> None:
    for number in range(3):
        plane.kubectl(
            "taint",
            "node",
            f"node-{number:03d}",
            "node.kubernetes.io/network-unavailable=:NoSchedule",
        )
    plane.kubectl("apply", "-k", str(deploy.DEPLOY / "overlays/hostnetwork"))
    assert len({pod["spec"]["nodeName"] for pod in placed(plane, 2)}) == 2
    assert all(pod["spec"]["hostNetwork"] for pod in pods(plane))


def test_without_a_scheduler_the_service_runs_on_the_node_that_is_named(
    plane: controlplane.ControlPlane,
) -> None:
    scheduler = plane.processes.pop("scheduler")
    scheduler.kill()
    scheduler.wait()
    plane.add_nodes([controlplane.node("edge-0")])
    plane.kubectl("apply", "-k", str(deploy.DEPLOY / "overlays/edge"))
    (pod,) = placed(plane, 1)
    assert pod["spec"]["nodeName"] == "edge-0"
