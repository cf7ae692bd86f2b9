"""Who may only write DaemonSets or Deployments takes the place of a canary, on a real control plane
with a real git server: nothing is halted, reverted or proven, and the rollout continues by itself.
With the permission to nominate nodes for pods no other pod gets the place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gitops_ds.core import names
from gitops_ds.rollouts.state import keys
from tests import controlplane, gitservers
from tests.plan.world import daemonset
from tests.service.test_service import running, settings, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.controlplane,
    pytest.mark.system,
    pytest.mark.xdist_group("taken-places"),
]
SPACE, TENANT, NODES = "node-agents", "tenant", 4
POLICY = """\
stages: [{name: canary, soak: 2s}, {name: rest, soak: 1s}]
gates: {pods: {readyWithin: 5s}}
onFailure: {revert: {after: 1s, how: commit}}
limits: {atRisk: {cluster: 25%}}
"""
PORTS = [{"containerPort": 9999, "hostPort": 9999}]
WAITS = "caused by the other pods of the node"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[controlplane.ControlPlane]:
    options = controlplane.Wanted(
        nodes=NODES,
        pod_ready_milliseconds=100,
        pod_delete_milliseconds=controlplane.POD_DELETE_MILLISECONDS,
    )
    made = controlplane.ControlPlane(tmp_path_factory.mktemp("plane") / "plane", options)
    made.start()
    for space in (SPACE, "web"):
        made.kubectl("create", "namespace", space)
        role = ("--verb=get,list,create,delete", "--resource=daemonsets.apps,deployments.apps")
        made.kubectl("-n", space, "create", "role", TENANT, *role)
        made.kubectl(
            "-n", space, "create", "rolebinding", TENANT, f"--role={TENANT}", f"--user={TENANT}"
        )
    yield made
    made.stop()


@dataclass
class Fleet:
    """The service, its repository, and its agent, which runs on all nodes."""

    plane: controlplane.ControlPlane
    upstream: gitservers.Upstream
    log: Path
    name: str
    fields: dict[str, Any]

    def commit(self, tag: int, **fields: Any) -> str:
        """A commit with another image, and other fields of the container."""
        body = daemonset(self.name, f"registry.example.com/agent:{tag}", SPACE)
        body["spec"]["template"]["spec"]["containers"][0].update({**self.fields, **fields})
        files = {
            "gitops-ds.yaml": f"version: v1\nname: {self.name}\n",
            "agents/agent/agent-ds.yaml": json.dumps(body, indent=2),
            "agents/agent/rollout.yaml": POLICY,
        }
        return self.upstream.commit(files, f"Agent {tag}")

    def runs(self, tag: int) -> set[str]:
        """The nodes with a ready pod of an image."""
        pods = self.plane.items(SPACE, "pods", labelSelector=f"app={self.name}")
        return {
            str(pod["spec"].get("nodeName"))
            for pod in pods
            if pod["spec"]["containers"][0]["image"].endswith(f":{tag}")
            and "deletionTimestamp" not in pod["metadata"]
            and {("Ready", "True")}
            & {(c["type"], c["status"]) for c in pod["status"].get("conditions") or ()}
        }

    def as_tenant(self, space: str, body: dict[str, Any]) -> None:
        """The tenant creates an object."""
        words = ("--as", TENANT, "-n", space, "create", "-f", "-")
        self.plane.kubectl(*words, stdin=json.dumps(body))

    def proven(self) -> str:
        """The image of the DaemonSet's template, if its rollout is over."""
        body = self.plane.read(SPACE, "daemonsets", self.name)
        image = str(body["spec"]["template"]["spec"]["containers"][0]["image"])
        return "" if keys.TARGET in body["metadata"]["annotations"] else image

    def subjects(self) -> list[str]:
        return self.upstream.git("log", "--format=%s", "main").splitlines()

    def unharmed(self, newest: str) -> None:
        """Nothing was halted or reverted."""
        assert "halted" not in self.log.read_text()
        assert self.subjects()[0] == newest
        annotations = self.plane.read(SPACE, "daemonsets", self.name)["metadata"]["annotations"]
        assert keys.HALTED not in annotations


# Refuses the nominations of the service, as without the permission; the scheduler keeps its own.
REFUSING = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicy",
    "metadata": {"name": "no-nominations"},
    "spec": {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["UPDATE"],
                    "resources": ["pods/status"],
                }
            ]
        },
        "validations": [
            {
                "expression": "!has(object.status.nominatedNodeName)"
                f" || !('{names.ROLLOUT}' in object.metadata.labels)",
                "message": "no nominations here",
                "reason": "Forbidden",
            }
        ],
    },
}
BOUND = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicyBinding",
    "metadata": {"name": "no-nominations"},
    "spec": {"policyName": "no-nominations", "validationActions": ["Deny"]},
}


@pytest.fixture
def unpermitted(plane: controlplane.ControlPlane) -> Iterator[None]:
    """The API server refuses nominations."""
    for body in (REFUSING, BOUND):
        plane.kubectl("create", "-f", "-", stdin=json.dumps(body))
    yield
    for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
        plane.kubectl("delete", kind, "no-nominations")


@pytest.fixture
def fleet(
    request: pytest.FixtureRequest, plane: controlplane.ControlPlane, tmp_path: Path
) -> Iterator[Fleet]:
    name, fields = request.param
    with gitservers.http_git_server(tmp_path / "git") as server:
        repository = {
            "url": f"{server.url}/fleet",
            "interval": "1s",
            "credentials": server.credentials(tmp_path),
            "push": True,
        }
        options = settings(tmp_path, repository=repository)
        made = Fleet(plane, server.repository("fleet"), tmp_path / "log", name, fields)
        made.commit(1)
        with running(tmp_path, plane, *options):
            until(lambda: len(made.runs(1)) == NODES, made.log.read_text)
            until(lambda: bool(made.proven()), made.log.read_text)
            try:
                yield made
            finally:
                assert "Traceback" not in made.log.read_text()
    plane.kubectl("-n", SPACE, "delete", "daemonset", name)


CPU = {"resources": {"requests": {"cpu": "200m"}}}


def blocker() -> dict[str, Any]:
    """A DaemonSet with the host port of the agent."""
    body = daemonset("blocker", "registry.example.com/web:1", SPACE)
    body["spec"]["template"]["spec"]["containers"][0]["ports"] = PORTS
    return body


def deployment(name: str, replicas: int, cpu: str) -> dict[str, Any]:
    """A Deployment of pods with a request."""
    labels = {"app": name}
    container = {"name": "web", "image": "registry.example.com/web:1"}
    container["resources"] = {"requests": {"cpu": cpu}}  # type: ignore[assignment]
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def pending(plane: controlplane.ControlPlane, space: str, app: str) -> int:
    """The pods without a place."""
    pods = plane.items(space, "pods", labelSelector=f"app={app}")
    return sum(
        ("PodScheduled", "False")
        in {(c["type"], c["status"]) for c in pod["status"].get("conditions") or ()}
        for pod in pods
    )


def displaced(fleet: Fleet) -> int:
    """Commits until another pod takes the place of a canary's: which of the two comes first is
    chance. Returns the last tag.
    """
    for tag in range(2, 12):
        fleet.commit(tag)
        until(
            lambda end=f":{tag}": WAITS in fleet.log.read_text() or fleet.proven().endswith(end),  # type: ignore[misc]
            fleet.log.read_text,
        )
        if WAITS in fleet.log.read_text():
            return tag
    raise AssertionError(fleet.log.read_text())


def placed(plane: controlplane.ControlPlane, space: str, app: str) -> int:
    """The pods with a node."""
    pods = plane.items(space, "pods", labelSelector=f"app={app}")
    return sum("nodeName" in pod["spec"] for pod in pods)


@pytest.mark.parametrize("fleet", [("kept", {"ports": PORTS})], indirect=True)
def test_no_pod_of_the_same_priority_gets_the_place_of_a_canary(fleet: Fleet) -> None:
    fleet.as_tenant(SPACE, blocker())
    until(lambda: pending(fleet.plane, SPACE, "blocker") == NODES, fleet.log.read_text)
    for tag in range(2, 5):
        fleet.commit(tag)
        until(lambda end=f":{tag}": fleet.proven().endswith(end), fleet.log.read_text)  # type: ignore[misc]
        assert len(fleet.runs(tag)) == NODES
    assert WAITS not in fleet.log.read_text()
    assert pending(fleet.plane, SPACE, "blocker") == NODES
    assert fleet.log.read_text().count("NominatePod") >= 3 * NODES  # each failed attempt clears it
    fleet.unharmed("Agent 4")
    fleet.plane.kubectl("--as", TENANT, "-n", SPACE, "delete", "daemonset", "blocker")


@pytest.mark.usefixtures("unpermitted")
@pytest.mark.parametrize("fleet", [("ports", {"ports": PORTS})], indirect=True)
def test_a_daemonset_of_a_tenant_with_the_same_host_port_causes_no_halt_and_no_revert(
    fleet: Fleet,
) -> None:
    fleet.as_tenant(SPACE, blocker())
    until(lambda: pending(fleet.plane, SPACE, "blocker") == NODES, fleet.log.read_text)
    tag = displaced(fleet)
    assert f"({SPACE}/blocker-" in fleet.log.read_text()
    fleet.unharmed(f"Agent {tag}")
    # Another commit is applied meanwhile, and no further node is touched.
    before = fleet.runs(tag - 1)
    tag += 1
    fleet.commit(tag)
    until(lambda: fleet.log.read_text().count(WAITS) > 1, fleet.log.read_text)
    assert fleet.runs(tag - 2) == before
    fleet.unharmed(f"Agent {tag}")
    words = ("--as", TENANT, "-n", SPACE, "delete", "daemonset", "blocker")
    fleet.plane.kubectl(*words)
    until(lambda: len(fleet.runs(tag)) == NODES, fleet.log.read_text)
    until(lambda: fleet.proven().endswith(f":{tag}"), fleet.log.read_text)
    fleet.unharmed(f"Agent {tag}")


@pytest.mark.usefixtures("unpermitted")
@pytest.mark.parametrize("fleet", [("cpu", CPU)], indirect=True)
def test_deployments_of_another_namespace_that_fill_the_nodes_cause_no_halt_and_no_revert(
    fleet: Fleet,
) -> None:
    # A node of kwok has 16 CPUs.
    fleet.as_tenant("web", deployment("big", NODES, "15500m"))
    until(lambda: placed(fleet.plane, "web", "big") == NODES, fleet.log.read_text)
    fleet.as_tenant("web", deployment("small", 30, "150m"))
    until(lambda: pending(fleet.plane, "web", "small") > NODES, fleet.log.read_text)
    tag = displaced(fleet)
    assert "Insufficient cpu" in fleet.log.read_text()
    fleet.unharmed(f"Agent {tag}")
    fleet.plane.kubectl("--as", TENANT, "-n", "web", "delete", "deployment", "small", "big")
    until(lambda: len(fleet.runs(tag)) == NODES, fleet.log.read_text)
    until(lambda: fleet.proven().endswith(f":{tag}"), fleet.log.read_text)
    fleet.unharmed(f"Agent {tag}")


@pytest.mark.parametrize("fleet", [("grown", CPU)], indirect=True)
def test_a_template_that_requests_more_than_a_node_has_is_reverted(fleet: Fleet) -> None:
    fleet.commit(2, resources={"requests": {"cpu": "17"}})
    until(lambda: "halted in stage canary" in fleet.log.read_text(), fleet.log.read_text)
    until(lambda: fleet.subjects()[0] == 'Revert "Agent 2"', fleet.log.read_text)
    until(lambda: len(fleet.runs(1)) == NODES, fleet.log.read_text)
