"""Scenes of the use of a service, for its account: each sends requests."""

from __future__ import annotations

import json
import re
import secrets
import urllib.error
from collections.abc import Iterable, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from gitops_ds.core import errors
from gitops_ds.core.objects import CONFIG_MAP, Resource
from gitops_ds.kube.apimachinery import builtin_resources
from gitops_ds.kube.client import connect
from gitops_ds.kube.client.connect import Connection
from tests import controlplane, gitservers
from tests.cluster import program
from tests.installation import rights
from tests.installation.rights import NAMESPACE, PATIENCE, Replicas
from tests.plan.world import daemonset
from tests.service.test_service import until

STATE = "gitops-ds-fleet"
APPS = "/apis/apps/v1/namespaces"


def image(tag: int) -> str:
    return f"registry.example.com/agent:{tag}"


def following(upstream: gitservers.Upstream, **more: Any) -> dict[str, Any]:
    """Settings for a repository of this machine."""
    where = {"url": str(upstream.path), "allowLocal": True, "interval": "1s", "retryInterval": "1s"}
    return {"repository": where, "apply": {"prune": True, "guards": {"maxDeletes": "100%"}, **more}}


_WRITTEN: Mapping[str, Resource] = {
    "ConfigMap": CONFIG_MAP,
    **{kind: builtin_resources.RESOURCES["", kind] for kind in ("Service", "ServiceAccount")},
}


async def writes(
    account: Path, wanted: Iterable[tuple[str, str, str]]
) -> dict[tuple[str, str, str], str]:
    """Writes by an account (verb, kind, namespace), each with the part of its refusal that names a
    component. A creation is a dry run, the others are those of the ConfigMap `kept`.
    """
    answers = {}
    async with connect.writing(Connection(str(account), writes=True)) as cluster:
        for verb, kind, space in wanted:
            resource, name = _WRITTEN[kind], "kept" if verb != "create" else "written"
            spec = {"spec": {"type": "ExternalName", "externalName": "a.example.com"}}
            body = {
                "apiVersion": "v1",
                "kind": kind,
                "metadata": {"name": name, "namespace": space},
                **(spec if kind == "Service" else {}),
            }
            refusal = ""
            try:
                match verb:
                    case "create":
                        await cluster.dry_run(resource, body, manager="test")
                    case "patch":
                        await cluster.patch(resource, space, name, {"data": {"a": "b"}})
                    case _:
                        await cluster.delete(resource, space, name)
            except errors.ClusterError as error:
                found = re.search("require the component rights/[a-z-]+", str(error))
                refusal = found.group() if found else str(error)
            answers[verb, kind, space] = refusal
    return answers


def documents(*objects: Mapping[str, Any]) -> str:
    return "\n---\n".join(map(json.dumps, objects))


def live(plane: controlplane.ControlPlane, path: str) -> dict[str, Any] | None:
    """The object at this path of the API, None if it does not exist."""
    try:
        body: dict[str, Any] = plane.request("GET", path)
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.NOT_FOUND:
            return None
        raise
    return body


def companions(space: str, text: str) -> list[dict[str, Any]]:
    """One object of each kind that a repository can contain beside DaemonSets."""

    def one(version: str, kind: str, **fields: Any) -> dict[str, Any]:
        there = {} if kind == "PriorityClass" else {"namespace": space}
        metadata = {"name": "agent", **there, "labels": {"text": text}}
        return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}

    headless = {"clusterIP": "None", "selector": {"app": "agent"}}
    closed = {"podSelector": {}, "policyTypes": ["Ingress"]}
    return [
        namespace(space, text=text),
        one("v1", "ConfigMap", data={"text": text}),
        one("v1", "ServiceAccount"),
        one("v1", "Service", spec=headless),
        one("networking.k8s.io/v1", "NetworkPolicy", spec=closed),
        one("scheduling.k8s.io/v1", "PriorityClass", value=1000),
    ]


def namespace(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def agents(tag: int, text: str, space: str = "fleet") -> dict[str, str | bytes | None]:
    """The files of a fleet of two agents, one of which needs the other and has a configuration."""
    configured = daemonset("agent", image(tag), space)
    configured["spec"]["template"]["spec"]["volumes"] = [
        {"name": "config", "configMap": {"name": "agent"}}
    ]
    return {
        "gitops-ds.yaml": 'version: v1\nname: fleet\nmanifests: ["shared/*.json"]\n',
        "shared/more.json": documents(*companions(space, text)),
        "agents/base/daemonset.json": documents(daemonset("base", image(1), space)),
        "agents/agent/agent.yaml": "dependsOn: [base]\n",
        "agents/agent/daemonset.json": documents(configured),
        "agents/agent/config/agent.conf": text,
    }


def a_fleet_lives(
    plane: controlplane.ControlPlane, upstream: gitservers.Upstream, service: Replicas
) -> None:
    """Scenes A1, B9, C15 to C17, C19, D21: made, changed, refused, corrected, put back."""
    service.wait_for_log("created DaemonSet fleet/agent")
    program.rolled_out(plane, "fleet", "agent")
    upstream.commit(agents(2, "two"))
    service.wait_for_log("updated DaemonSet fleet/agent")
    program.rolled_out(plane, "fleet", "agent")
    service.wait_for_log("updated Namespace fleet")

    name, good = "agents/agent/daemonset.json", agents(3, "two")
    bad = upstream.commit({name: str(good[name]).replace('"containers"', '"nope"')})
    service.wait_for_log(f"commit {bad[:12]} is not applied")
    upstream.commit({name: good[name]})
    _runs(plane, 3)
    plane.kubectl("-n", "fleet", "set", "image", "ds/agent", f"agent={image(9)}")
    _runs(plane, 3)
    for times in (2, 3):  # the second time raises the count of an event
        plane.kubectl("-n", "fleet", "delete", "ds/agent")
        service.wait_for_log("created DaemonSet fleet/agent", times)
    upstream.commit(agents(2, "two"))  # the way back
    _runs(plane, 2)
    program.rolled_out(plane, "fleet", "agent")


def _runs(
    plane: controlplane.ControlPlane, tag: int, space: str = "fleet", name: str = "agent"
) -> None:
    def runs() -> str:
        body = live(plane, f"{APPS}/{space}/daemonsets/{name}") or {}
        return str(body and body["spec"]["template"]["spec"]["containers"][0]["image"])

    program.eventually(runs, lambda value: value == image(tag), PATIENCE)


def _annotate(plane: controlplane.ControlPlane, word: str) -> None:
    plane.kubectl("-n", NAMESPACE, "annotate", "--overwrite", "configmap", STATE, word)


def a_pass(plane: controlplane.ControlPlane, service: Replicas) -> str:
    """Requests a reconciliation by annotation; returns its outcome."""
    value = secrets.token_hex(4)
    _annotate(plane, f"gitops-ds.io/requested-at={value}")

    def annotations() -> dict[str, str]:
        return dict(
            plane.request("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps/{STATE}")["metadata"][
                "annotations"
            ]
        )

    until(lambda: annotations().get("gitops-ds.io/handled-at") == value, service.log, PATIENCE)
    return annotations()["gitops-ds.io/outcome"]


STAGED = """\
stages: [{name: canary, soak: 1s}, {name: rest, soak: 1s}]
limits: {atRisk: {cluster: 100%}}
"""


def a_staged_rollout(
    plane: controlplane.ControlPlane,
    upstream: gitservers.Upstream,
    service: Replicas,
    space: str = "fleet",
) -> None:
    """The other agent gets a policy: a commit is replaced in mid-rollout, the next is complete."""
    name = "agents/base/daemonset.json"
    slow = STAGED.replace("canary, soak: 1s", "canary, soak: 1h")
    upstream.commit({"agents/base/rollout.yaml": slow})
    service.wait_for_log(f"updated DaemonSet {space}/base")
    upstream.commit({name: documents(daemonset("base", image(2), space))})
    service.wait_for_log(f"NominatePod {space}/base")
    upstream.commit(
        {
            "agents/base/rollout.yaml": STAGED,
            name: documents(daemonset("base", image(3), space)),
        }
    )
    service.wait_for_log(f"PromoteRevision {space}/base")

    _runs(plane, 3, space, "base")
    # Without a policy the built-in controller rolls it back at once.
    first = documents(daemonset("base", image(1), space))
    upstream.commit({"agents/base/rollout.yaml": None, name: first})
    _runs(plane, 1, space, "base")
    program.rolled_out(plane, space, "base")


def a_pod_finds_no_room(plane: controlplane.ControlPlane) -> None:
    """Pods that no node has the memory for: the service reads their events."""
    body = daemonset("huge", image(1), "default")
    [container] = body["spec"]["template"]["spec"]["containers"]
    container["resources"] = {"requests": {"memory": "100Ti"}}
    since = plane.audit_log.stat().st_size
    plane.request("POST", f"{APPS}/default/daemonsets", body)
    lists = rights.Right("list", "", "events")
    until(
        lambda: lists not in rights.judge(plane, since).unused,
        lambda: "the events of its pods were not read",
        PATIENCE,
    )
    plane.kubectl("-n", "default", "delete", "daemonset", "huge")


def annotations_control_the_loop(
    plane: controlplane.ControlPlane, upstream: gitservers.Upstream, service: Replicas
) -> None:
    """A reconciliation, a suspension and a resumption, by annotations of the state."""
    a_pass(plane, service)
    _annotate(plane, "gitops-ds.io/suspend=true")
    upstream.commit(agents(4, "two"))
    service.wait_for_log("suspended: 1 change of commit")
    _annotate(plane, "gitops-ds.io/suspend-")
    _runs(plane, 4)


def another_leads(
    plane: controlplane.ControlPlane, upstream: gitservers.Upstream, service: Replicas
) -> None:
    """Scene E24: the leader ends, the other one continues from there."""
    service.stop_the_leader()
    upstream.commit(agents(5, "two"))
    _runs(plane, 5)
    program.rolled_out(plane, "fleet", "agent")


def a_person_deletes_what_left_git(
    plane: controlplane.ControlPlane, upstream: gitservers.Upstream, service: Replicas
) -> None:
    """Without pruning an agent that left Git stays until then; its status goes with it."""
    files = ("agent.yaml", "daemonset.json", "config/agent.conf")
    upstream.commit(dict.fromkeys(f"agents/agent/{name}" for name in files))
    a_pass(plane, service)
    plane.kubectl("-n", "fleet", "delete", "ds/agent")
    status = f"/api/v1/namespaces/{NAMESPACE}/configmaps/gitops-ds-status-fleet.agent"
    program.eventually(partial(live, plane, status), lambda value: value is None, PATIENCE)
    assert live(plane, f"{APPS}/fleet/daemonsets/agent") is None


def it_leaves_git(
    plane: controlplane.ControlPlane, upstream: gitservers.Upstream, service: Replicas
) -> None:
    """Scene C18: more nodes lose an agent than the guard allows, so an approval is needed;
    one DaemonSet is deleted after the other.
    """
    gone = {"agents/agent/agent.yaml": None, "agents/agent/config/agent.conf": None}
    gone |= {f"agents/{name}/daemonset.json": None for name in ("agent", "base")}
    upstream.commit({**gone, "shared/more.json": documents(namespace("kept"))})
    service.wait_for_log("created Namespace kept")
    _approve(plane, service)
    for name in ("agent", "base"):
        service.wait_for_log(f"deleted DaemonSet fleet/{name}")

    def left(path: str) -> Any:
        # An approval of a Namespace counts for one plan: other objects may have been created in it.
        _approve(plane, service)
        return live(plane, path)

    for path in ("/apis/scheduling.k8s.io/v1/priorityclasses/agent", "/api/v1/namespaces/fleet"):
        program.eventually(partial(left, path), lambda value: value is None, PATIENCE)


def _approve(plane: controlplane.ControlPlane, service: Replicas) -> None:
    """Approves the last logged plan."""
    (*_, hash) = re.findall(r"approve this plan by its hash ([0-9a-f-]+)", service.log())
    _annotate(plane, f"gitops-ds.io/approve={hash}")


def a_lease_is_stolen(plane: controlplane.ControlPlane, service: Replicas) -> None:
    """The only remaining replica loses the lease, and acquires it again when it is free."""
    service.stop_the_leader()
    before = service.log().count("became leader")
    plane.kubectl(
        "-n",
        NAMESPACE,
        "patch",
        "lease",
        "gitops-ds",
        "--type=merge",
        "-p",
        '{"spec": {"holderIdentity": "a-thief"}}',
    )
    service.wait_for_log("a-thief holds it")
    service.wait_for_log("became leader", before + 1)


def keep(plane: controlplane.ControlPlane, *objects: Mapping[str, Any]) -> None:
    """Applies objects as a user of kubectl."""
    plane.kubectl("apply", "-f", "-", stdin=documents(*objects))


def secret(space: str, name: str, data: Mapping[str, str], **labels: str) -> dict[str, Any]:
    metadata = {"namespace": space, "name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": dict(data)}


def powerful(space: str, text: str) -> list[dict[str, Any]]:
    """A Secret, roles with rights that the service itself has not got, and their bindings."""
    group = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"], "resourceNames": [text]}
    ]
    subjects = [{"kind": "ServiceAccount", "name": "agent", "namespace": space}]
    found = [
        namespace(space),
        secret(space, "agent", {"text": text}),
    ]
    for kind, there in (("ClusterRole", {}), ("Role", {"namespace": space})):
        metadata = {"name": "agent", **there, "labels": {"text": text}}
        reference = {"apiGroup": group, "kind": kind, "name": "agent"}
        body = {"apiVersion": f"{group}/v1", "metadata": metadata}
        found.append({**body, "kind": kind, "rules": rules})
        found.append({**body, "kind": f"{kind}Binding", "roleRef": reference, "subjects": subjects})
    return found


def roles_come_change_and_go(upstream: gitservers.Upstream, service: Replicas) -> None:
    """Objects that require rights/rbac and rights/secrets."""
    kinds = ("Secret", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")

    def each(what: str) -> None:
        for kind in kinds:
            service.wait_for_log(
                f"{what} {kind} {'' if kind.startswith('Cluster') else 'more/'}agent"
            )

    each("created")
    upstream.commit({"all.json": documents(*powerful("more", "two"))})
    each("updated")
    upstream.commit({"all.json": documents(powerful("more", "two")[0])})
    each("deleted")


def keep_templates(plane: controlplane.ControlPlane) -> None:
    """Scene B10: a ConfigMap next to the service, a Secret elsewhere."""
    labels = {"gitops-ds.io/template": "true"}
    here = {"namespace": NAMESPACE, "name": "plain", "labels": labels}
    plain = {"agent.json": documents(daemonset("plain", image(1), "tools"))}
    hidden = {"agent.json": documents(daemonset("hidden", image(1), "tools"))}
    keep(
        plane,
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": here, "data": plain},
        secret("tools", "hidden", hidden, **labels),
    )


def a_template_goes(plane: controlplane.ControlPlane, service: Replicas) -> None:
    for name in ("plain", "hidden"):
        service.wait_for_log(f"created DaemonSet tools/{name}")
        program.rolled_out(plane, "tools", name)
        plane.kubectl(
            "-n",
            NAMESPACE,
            "wait",
            "--for=jsonpath={.data.ready}=True",
            f"configmap/gitops-ds-status-tools.{name}",
            "--timeout=90s",
        )
    plane.kubectl("-n", "tools", "delete", "secret", "hidden")
    service.wait_for_log("deleted DaemonSet tools/hidden")


def deployers(space: str) -> list[dict[str, Any]]:
    """Scene B12: an account for a namespace, and one for cluster-scoped objects."""
    group, every = "rbac.authorization.k8s.io", ["get", "create", "patch", "delete"]
    found: list[dict[str, Any]] = [namespace(space)]
    of_agents = "configmaps controllerrevisions daemonsets networkpolicies serviceaccounts services"
    for kind, name, home, resources in (
        ("Role", "deployer", space, of_agents.split()),
        ("ClusterRole", "cluster", NAMESPACE, ["namespaces", "priorityclasses"]),
    ):
        there = {"namespace": home} if kind == "Role" else {}
        metadata = {"name": name, **there}
        rules = [{"apiGroups": ["*"], "resources": resources, "verbs": every}]
        subjects = [{"kind": "ServiceAccount", "name": name, "namespace": home}]
        found += [
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": name, "namespace": home},
            },
            {"apiVersion": f"{group}/v1", "kind": kind, "metadata": metadata, "rules": rules},
            {
                "apiVersion": f"{group}/v1",
                "kind": f"{kind}Binding",
                "metadata": metadata,
                "subjects": subjects,
                "roleRef": {"apiGroup": group, "kind": kind, "name": name},
            },
        ]
    return found


def another_controller_was_here(plane: controlplane.ControlPlane) -> None:
    """It adopted the probe for competing controllers while no replica ran."""
    patch = '{"status": {"observedGeneration": 1}}'
    plane.kubectl(
        "-n",
        NAMESPACE,
        "patch",
        "ds/gitops-ds-probe",
        "--subresource=status",
        "--type=merge",
        "-p",
        patch,
    )


_DENIED = {
    "policy": {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "no-pods"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                    }
                ]
            },
            "validations": [{"expression": f"request.userInfo.username != '{rights.ACCOUNT}'"}],
        },
    },
    "binding": {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "no-pods"},
        "spec": {"policyName": "no-pods", "validationActions": ["Deny"]},
    },
}


def names_that_are_taken(plane: controlplane.ControlPlane, service: Replicas) -> None:
    """A pod and a revision of another owner have our names: the next name is used."""
    plane.kubectl("apply", "-f", "-", stdin=documents(*_DENIED.values()))
    plane.request("POST", f"{APPS}/default/daemonsets", daemonset("denied", image(1), "default"))
    service.wait_for_log("no-pods")
    requested = program.eventually(lambda: _names_requested(plane), bool)
    for name in requested:
        body = {
            "metadata": {"name": name},
            "spec": {"containers": [{"name": "other", "image": image(1)}], "nodeName": "node-000"},
        }
        plane.request(
            "POST", "/api/v1/namespaces/default/pods", {"apiVersion": "v1", "kind": "Pod", **body}
        )
    plane.kubectl("delete", "validatingadmissionpolicy,validatingadmissionpolicybinding", "no-pods")
    program.rolled_out(plane, "default", "denied")

    (name,) = (revision["metadata"]["name"] for revision in _revisions(plane, "denied"))
    plane.kubectl("delete", "ds/denied")
    program.eventually(lambda: _revisions(plane, "denied"), lambda value: not value)
    other = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {"name": name},
        "data": {},
        "revision": 1,
    }
    plane.request("POST", f"{APPS}/default/controllerrevisions", other)
    plane.request("POST", f"{APPS}/default/daemonsets", daemonset("denied", image(1), "default"))
    program.rolled_out(plane, "default", "denied")


def a_history(plane: controlplane.ControlPlane) -> None:
    """Scenes D20, D22: more revisions than the limit keeps, and one that is applied again."""
    body = daemonset("history", image(1), "default")
    body["spec"]["revisionHistoryLimit"] = 1
    plane.request("POST", f"{APPS}/default/daemonsets", body)
    program.rolled_out(plane, "default", "history")
    for tag in (2, 3):
        plane.kubectl("set", "image", "ds/history", f"agent={image(tag)}")
        program.rolled_out(plane, "default", "history")
    plane.kubectl("rollout", "undo", "ds/history")
    program.rolled_out(plane, "default", "history")
    program.eventually(lambda: len(_revisions(plane, "history")), lambda number: number == 2)


def pods_that_lost_their_owner(plane: controlplane.ControlPlane) -> None:
    """They are adopted by a DaemonSet that selects them."""
    plane.request("POST", f"{APPS}/default/daemonsets", daemonset("orphans", image(1), "default"))
    program.rolled_out(plane, "default", "orphans")
    plane.kubectl("delete", "ds/orphans", "--cascade=orphan")
    plane.request("POST", f"{APPS}/default/daemonsets", daemonset("orphans", image(1), "default"))
    program.rolled_out(plane, "default", "orphans")


def nodes_that_change(plane: controlplane.ControlPlane) -> None:
    """Scenes A2, A3: a node joins, another one is no longer eligible, a pod fails."""
    body = daemonset("nodes", image(1), "default", nodeSelector={"disk": "ssd"})
    plane.kubectl("label", "node", "node-001", "node-002", "disk=ssd")
    plane.request("POST", f"{APPS}/default/daemonsets", body)
    program.rolled_out(plane, "default", "nodes")

    def pods() -> dict[str, str]:
        items = plane.request("GET", "/api/v1/namespaces/default/pods?labelSelector=app%3Dnodes")[
            "items"
        ]
        return {pod["spec"].get("nodeName", ""): pod["metadata"]["name"] for pod in items}

    plane.add_nodes([controlplane.node("node-new", {"disk": "ssd"})])
    program.eventually(pods, lambda value: "node-new" in value, PATIENCE)
    plane.kubectl("label", "node", "node-001", "disk-")
    program.eventually(pods, lambda value: value.keys() == {"node-002", "node-new"}, PATIENCE)
    name = pods()["node-002"]
    plane.kubectl(
        "patch", "pod", name, "--subresource=status", "-p", '{"status": {"phase": "Failed"}}'
    )
    program.eventually(pods, lambda value: value.get("node-002", name) != name, PATIENCE)


def _revisions(plane: controlplane.ControlPlane, name: str) -> list[dict[str, Any]]:
    items = plane.request("GET", f"{APPS}/default/controllerrevisions")["items"]
    return [
        item
        for item in items
        if item["metadata"]["name"].startswith(f"{name}-")
        and item["metadata"].get("ownerReferences")
    ]


def _names_requested(plane: controlplane.ControlPlane) -> set[str]:
    """The names of pods whose creation was refused."""
    requests = map(json.loads, plane.audit_log.read_text().splitlines())
    pods = (
        request
        for request in requests
        if request["user"].get("username") == rights.ACCOUNT
        and request.get("objectRef", {}).get("resource") == "pods"
    )
    return {
        pod["objectRef"]["name"]
        for pod in pods
        if pod["verb"] == "create"
        and pod["responseStatus"]["code"] == 422
        and "name" in pod["objectRef"]
    }
