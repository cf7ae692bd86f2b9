"""The service, with a token of its account and nothing else: no request is refused, and nothing that was granted is left unused.

Each power plays the scenes that it is for, on a control plane of its own whose audit log is read at the end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import controlplane, deploy, gitservers
from tests.cluster import program
from tests.deploy import rights
from tests.plan.world import daemonset
from tests.service.test_service import until

pytestmark = [pytest.mark.controlplane, pytest.mark.system]
PATIENCE = 120.0
ENFORCED = ("--enable-admission-plugins", "OwnerReferencesPermissionEnforcement")


@pytest.fixture
def plane(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[controlplane.ControlPlane]:
    """With an audit log; the built-in DaemonSet controller is off where the test is of full powers."""
    built_in = request.param != "full"
    wanted = controlplane.Wanted(nodes=3, daemonset_controller=built_in, audit=True, api_server_options=ENFORCED)
    found = controlplane.ControlPlane(tmp_path / "plane", wanted)
    try:
        yield found.start()
    finally:
        found.stop()


def image(tag: int) -> str:
    return f"registry.example.com/agent:{tag}"


def following(upstream: gitservers.Upstream, more: str = "") -> str:
    where = json.dumps({"url": str(upstream.path), "allowLocal": True, "interval": "1s", "retryInterval": "1s"})
    return f"repository: {where}\nlog: {{format: text}}\n{more}"


def installed(plane: controlplane.ControlPlane, tmp_path: Path, power: str, *components: str) -> None:
    """deploy/ with the power; its own pods do not run here, so they take none of the rights that are looked at."""
    deploy.apply(plane, deploy.overlay(tmp_path / "overlay", power, "log: {format: text}\n", *components))
    if power != "observe":
        until(
            lambda: bool(json.loads(plane.kubectl("get", "clusterrole", "gitops-ds-objects", "-o", "json"))["rules"]),
            lambda: "the rights were not gathered", PATIENCE,
        )  # fmt: skip


def companions(space: str, text: str) -> list[dict[str, Any]]:
    """One of each kind that a repository may hold beside DaemonSets."""
    there = {"namespace": space}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "agent", **there}, "data": {"text": text}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "agent", **there, "labels": {"text": text}}},
        {
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "agent", **there, "labels": {"text": text}},
            "spec": {"clusterIP": "None", "selector": {"app": "agent"}},
        },
        {
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": "agent", **there, "labels": {"text": text}},
            "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
        },
        {
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": "agent", "labels": {"text": text}}, "value": 1000,
        },
    ]  # fmt: skip


def namespace(name: str, text: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"text": text}}}


def documents(*objects: dict[str, Any]) -> str:
    return "\n---\n".join(map(json.dumps, objects))


def shows(plane: controlplane.ControlPlane, *words: str) -> str:
    return plane.kubectl("get", *words, "--ignore-not-found")


@pytest.mark.parametrize("plane", ["observe"], indirect=True)
def test_observe_needs_no_more_than_it_is_granted(tmp_path: Path, plane: controlplane.ControlPlane) -> None:
    installed(plane, tmp_path, "observe")
    with rights.service(plane, tmp_path / "run", "observe", "log: {format: json}\n"):
        plane.request("POST", "/apis/apps/v1/namespaces/default/daemonsets", daemonset("agent", image(1), "default"))
        program.rolled_out(plane, "default", "agent")
        until(lambda: rights.judge(plane).unused == (), lambda: str(rights.judge(plane)), PATIENCE)
    assert rights.judge(plane) == rights.Outcome((), ())


@pytest.mark.parametrize("plane", ["pace"], indirect=True)
def test_pace_needs_no_more_than_it_is_granted(tmp_path: Path, plane: controlplane.ControlPlane) -> None:
    installed(plane, tmp_path, "pace")
    upstream = gitservers.Upstream(tmp_path / "fleet")
    follow_a_repository(plane, upstream, tmp_path / "run", "pace")
    assert rights.judge(plane) == rights.Outcome((), ())


def follow_a_repository(plane: controlplane.ControlPlane, upstream: gitservers.Upstream, directory: Path, power: str) -> None:
    """Scenes A1, C15 to C19 of one repository: made, changed, refused, corrected, pruned."""
    first = {"ns.json": documents(namespace("fleet", "one")), "agent.json": documents(daemonset("agent", image(1), "fleet"))}
    upstream.commit({**first, "more.json": documents(*companions("fleet", "one"))})
    with rights.service(
        plane, directory, power, following(upstream, "apply: {prune: true, guards: {maxNodesLost: 100%}}\n")
    ) as log:

        def said(words: str) -> None:
            until(lambda: words in log(), log, PATIENCE)

        said("created DaemonSet fleet/agent")
        program.rolled_out(plane, "fleet", "agent")

        upstream.commit({
            "ns.json": documents(namespace("fleet", "two")), "more.json": documents(*companions("fleet", "two")),
            "agent.json": documents(daemonset("agent", image(2), "fleet")),
        })  # fmt: skip
        said("updated DaemonSet fleet/agent")
        program.rolled_out(plane, "fleet", "agent")
        said("updated Namespace fleet")

        bad = upstream.commit({"agent.json": documents(daemonset("agent", image(3), "fleet")).replace('"containers"', '"nope"')})
        said(f"commit {bad[:12]} is not applied")
        upstream.commit({"agent.json": documents(daemonset("agent", image(3), "fleet"))})
        program.eventually(lambda: shows(plane, "-n", "fleet", "ds/agent", "-o", "yaml"), lambda text: image(3) in text)

        plane.kubectl("-n", "fleet", "set", "image", "ds/agent", f"agent={image(9)}")
        program.eventually(lambda: shows(plane, "-n", "fleet", "ds/agent", "-o", "yaml"), lambda text: image(9) not in text)

        upstream.commit({"more.json": None, "agent.json": None, "ns.json": documents(namespace("kept", "one"))})
        said("deleted DaemonSet fleet/agent")
        program.eventually(lambda: shows(plane, "priorityclass/agent"), lambda text: not text)
        program.eventually(lambda: shows(plane, "namespace/fleet"), lambda text: not text)


DENIED = {
    "policy": {
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "no-pods"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
            },
            "validations": [{"expression": f"request.userInfo.username != '{rights.ACCOUNT}'"}],
        },
    },
    "binding": {
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "no-pods"},
        "spec": {"policyName": "no-pods", "validationActions": ["Deny"]},
    },
}  # fmt: skip


@pytest.mark.parametrize("plane", ["full"], indirect=True)
def test_full_needs_no_more_than_it_is_granted(tmp_path: Path, plane: controlplane.ControlPlane) -> None:
    installed(plane, tmp_path, "full")
    follow_a_repository(plane, gitservers.Upstream(tmp_path / "fleet"), tmp_path / "run", "full")
    with rights.service(plane, tmp_path / "alone", "full", "log: {format: text}\n") as log:
        names_that_are_taken(plane, log)
        a_history(plane)
        pods_that_lost_their_owner(plane)
    assert rights.judge(plane) == rights.Outcome((), ())


def names_that_are_taken(plane: controlplane.ControlPlane, log: Callable[[], str]) -> None:
    """A pod and a revision of somebody else's stand where ours would be: the next name is taken."""
    plane.kubectl("apply", "-f", "-", stdin=documents(*DENIED.values()))
    plane.request("POST", "/apis/apps/v1/namespaces/default/daemonsets", daemonset("denied", image(1), "default"))
    until(lambda: "no-pods" in log(), log, PATIENCE)
    wanted = program.eventually(lambda: _names_asked_for(plane), bool)
    for name in wanted:
        body = {"metadata": {"name": name}, "spec": {"containers": [{"name": "other", "image": image(1)}], "nodeName": "node-000"}}
        plane.request("POST", "/api/v1/namespaces/default/pods", {"apiVersion": "v1", "kind": "Pod", **body})
    plane.kubectl("delete", "validatingadmissionpolicy,validatingadmissionpolicybinding", "no-pods")
    program.rolled_out(plane, "default", "denied")

    (name,) = (one["metadata"]["name"] for one in _revisions(plane, "denied"))
    plane.kubectl("delete", "ds/denied")
    program.eventually(lambda: _revisions(plane, "denied"), lambda found: not found)
    other = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": name}, "data": {}, "revision": 1}
    plane.request("POST", "/apis/apps/v1/namespaces/default/controllerrevisions", other)
    plane.request("POST", "/apis/apps/v1/namespaces/default/daemonsets", daemonset("denied", image(1), "default"))
    program.rolled_out(plane, "default", "denied")


def a_history(plane: controlplane.ControlPlane) -> None:
    """More revisions than the limit keeps, and one that comes back."""
    body = daemonset("history", image(1), "default")
    body["spec"]["revisionHistoryLimit"] = 1
    plane.request("POST", "/apis/apps/v1/namespaces/default/daemonsets", body)
    program.rolled_out(plane, "default", "history")
    for tag in (2, 3):
        plane.kubectl("set", "image", "ds/history", f"agent={image(tag)}")
        program.rolled_out(plane, "default", "history")
    plane.kubectl("rollout", "undo", "ds/history")
    program.rolled_out(plane, "default", "history")
    program.eventually(lambda: len(_revisions(plane, "history")), lambda number: number == 2)


def pods_that_lost_their_owner(plane: controlplane.ControlPlane) -> None:
    """They are adopted by a DaemonSet that selects them."""
    plane.request("POST", "/apis/apps/v1/namespaces/default/daemonsets", daemonset("orphans", image(1), "default"))
    program.rolled_out(plane, "default", "orphans")
    plane.kubectl("delete", "ds/orphans", "--cascade=orphan")
    plane.request("POST", "/apis/apps/v1/namespaces/default/daemonsets", daemonset("orphans", image(1), "default"))
    program.rolled_out(plane, "default", "orphans")


def _revisions(plane: controlplane.ControlPlane, name: str) -> list[dict[str, Any]]:
    items = json.loads(plane.kubectl("get", "controllerrevisions", "-o", "json"))["items"]
    return [one for one in items if one["metadata"]["name"].startswith(f"{name}-") and one["metadata"].get("ownerReferences")]


def _names_asked_for(plane: controlplane.ControlPlane) -> set[str]:
    """The names of pods that the account tried to make and was not let."""
    told = map(json.loads, plane.audit_log.read_text().splitlines())
    pods = (
        one for one in told if one["user"].get("username") == rights.ACCOUNT and one.get("objectRef", {}).get("resource") == "pods"
    )
    return {
        one["objectRef"]["name"]
        for one in pods
        if one["verb"] == "create" and one["responseStatus"]["code"] == 422 and "name" in one["objectRef"]
    }
