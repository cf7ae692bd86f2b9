"""Rules over a cluster and over a change, beyond the examples of their pages; rules of a
repository's own, and rollouts that are played once.
"""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gitops_ds.checks.advice import security
from gitops_ds.checks.change import object_changes
from gitops_ds.checks.cluster import cluster_rules
from gitops_ds.checks.engine.check import check
from gitops_ds.checks.engine.contexts import ChangeSides, ClusterContext
from gitops_ds.cli.snapshot import cluster_snapshot
from gitops_ds.core.finding import Finding
from gitops_ds.core.live import Live, Node
from gitops_ds.core.objects import Digest, key_of
from gitops_ds.core.sources.bundle import Manifest, Origin, Pointer
from gitops_ds.deploy.pipeline import change_forecast, prepare
from tests.checks.test_rule_pages import parsed
from tests.plan import world
from tests.plan.world import daemonset

Body = dict[str, Any]
IMAGE = "registry.example.com/agent:1"


def prepared(
    *bodies: Body, live: Live | None = None, settings: Body | None = None
) -> prepare.Prepared:
    own = {"version": "v1", "manifests": ["/*.json"], **(settings or {})}
    files = {f"{index}.json": body for index, body in enumerate(bodies)}
    return prepare.prepare(
        world.snapshot({"gitops-ds.yaml": orjson.dumps(own), **files}), live=live or Live()
    )


def summaries(findings: tuple[Finding, ...], family: str) -> list[str]:
    return [
        f"{one.rule} {one.severity} {one.object.name if one.object else ''}"
        for one in findings
        if one.rule.startswith(family)
    ]


def messages(rule: str, findings: tuple[Finding, ...]) -> list[str]:
    return [
        f"{one.object.name if one.object else ''}: {one.message}"
        for one in findings
        if one.rule == rule
    ]


def selecting(name: str, **labels: str) -> Body:
    body = daemonset(name)
    body["spec"]["selector"] = {"matchLabels": labels}
    body["spec"]["template"]["metadata"]["labels"] = labels
    return body


def classed(body: Body) -> Body:
    body["metadata"]["annotations"] = {"gitops-ds.io/class": "monitoring"}
    return body


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (selecting("b", app="x"), ["DS104 warning a", "DS104 warning b"]),
        (selecting("b", app="x", tier="y"), ["DS104 warning a"]),
        (classed(selecting("b", app="x")), ["DS104 warning a", "DS104 error b"]),
    ],
    ids=["equal", "narrower", "of a class"],
)
def test_the_wider_selector_is_reported(other: Body, expected: list[str]) -> None:
    assert summaries(prepared(selecting("a", app="x"), other).findings, "DS104") == expected


def with_port(name: str, **spec: Any) -> Body:
    ports = [{"containerPort": 9100, "hostPort": 9100}]
    return daemonset(name, containers=[{"name": "agent", "image": IMAGE, "ports": ports}], **spec)


def test_a_pod_in_the_network_of_the_host_uses_its_ports_if_nodes_are_known() -> None:
    bodies = with_port("a", hostNetwork=True), with_port("b")
    known = prepared(*bodies, live=cluster_snapshot.simulated(3)).findings
    assert summaries(known, "DS6") == ["DS601 warning a"]
    assert summaries(prepared(*bodies).findings, "DS6") == []


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (selecting("a", app="x", tier="y"), selecting("a", tier="y", app="x"), []),
        (daemonset("a"), daemonset("b"), ["DS701 warning b"]),
        (daemonset("a"), daemonset("b", "registry.example.com/other:1"), ["DS702 warning a"]),
    ],
    ids=["labels in another order", "one image, another selector", "another image"],
)
def test_an_agent_is_known_by_its_selector_or_its_images(
    before: Body, after: Body, expected: list[str]
) -> None:
    base, head = prepared(before), prepared(after)
    change = ChangeSides(base.cluster_context, head.cluster_context)
    findings = prepare.compared(change, head, world.snapshot({"0.json": after})).findings
    rules = {rule.id for rule in object_changes.RULES}
    assert [one for one in summaries(findings, "DS") if one[:5] in rules] == expected


def context(*bodies: Body) -> ClusterContext:
    origin = Origin(Pointer("f", 0, ()))
    return ClusterContext(
        {key_of(body): Manifest(key_of(body), body, Digest(""), origin) for body in bodies}
    )


def named(kind: str, name: str, namespace: str = "logging", **more: Any) -> Body:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **more}


def agent(spec: str) -> Body:
    """The agent with more in the spec of its pods, as YAML."""
    body = daemonset("agent", namespace="logging")
    body["spec"]["template"]["spec"] |= parsed(spec)
    return body


@pytest.mark.parametrize(
    ("spec", "missing"),
    [
        ("{}", ""),
        ("serviceAccountName: default", ""),
        ("serviceAccountName: agent", "ServiceAccount agent"),
        ("serviceAccount: agent", "ServiceAccount agent"),
        ("volumes: [{name: a, configMap: {name: settings}}]", "ConfigMap settings"),
        ("volumes: [{name: a, configMap: {name: settings, optional: true}}]", ""),
        ("volumes: [{name: a, secret: {secretName: key}}]", "Secret key"),
        ("volumes: [{name: a, projected: {sources: [{secret: {name: key}}]}}]", "Secret key"),
        ("volumes: [{name: a, projected: {sources: [{configMap: {name: kube-root-ca.crt}}]}}]", ""),
        ("containers: [{envFrom: [{configMapRef: {name: env}}]}]", "ConfigMap env"),
        (
            "initContainers: [{env: [{valueFrom: {secretKeyRef: {name: key, key: a}}}]}]",
            "Secret key",
        ),
        ("containers: [{env: [{valueFrom: {fieldRef: {fieldPath: b}}}]}]", ""),
    ],
)
def test_objects_that_pods_reference_are_in_the_repository(spec: str, missing: str) -> None:
    reported = [one.message for one in cluster_rules.known_references.check(context(agent(spec)))]
    expected = [missing.replace(" ", " logging/")] if missing else []
    assert [message.split("has no ")[1].split(":")[0] for message in reported] == expected
    if missing:
        kind, name = missing.split()
        there = context(agent(spec), named(kind, name))
        assert not list(cluster_rules.known_references.check(there))
        elsewhere = context(agent(spec), named(kind, name, "other"))
        assert list(cluster_rules.known_references.check(elsewhere))


@pytest.mark.parametrize(
    ("modes", "count"),
    [
        (["ReadWriteOnce"], 1),
        (["ReadWriteOncePod"], 1),
        (["ReadWriteOnce", "ReadWriteMany"], 0),
        (["ReadOnlyMany"], 0),
        (None, 0),
    ],
)
def test_a_volume_is_for_all_nodes(modes: list[str] | None, count: int) -> None:
    wanting = agent("volumes: [{name: spool, persistentVolumeClaim: {claimName: spool}}]")
    claims = [named("PersistentVolumeClaim", "spool", spec={"accessModes": modes})] if modes else []
    assert len(list(cluster_rules.shared_claims.check(context(wanting, *claims)))) == count


GOOD = parsed("""
securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
containers:
- name: agent
  securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
volumes: [{name: a, emptyDir: {}}]
""")


def with_context(context: str) -> Body:
    own = GOOD["containers"][0]["securityContext"] | parsed(context)
    return GOOD | {"containers": [{"name": "agent", "securityContext": own}]}


@pytest.mark.parametrize(
    ("spec", "baseline", "restricted"),
    [
        (GOOD, [], []),
        (GOOD | {"hostNetwork": True}, ["hostNetwork"], ["hostNetwork"]),
        (
            GOOD | parsed("volumes: [{name: a, hostPath: {path: /}}]"),
            ["hostPath volumes"],
            ["hostPath volumes"],
        ),
        (GOOD | parsed("volumes: [{name: a, nfs: {path: /}}]"), [], ["nfs volumes"]),
        (with_context("privileged: true"), ["privileged"], ["privileged"]),
        (with_context("capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}"), [], []),
        (with_context("capabilities: {drop: [ALL], add: [CHOWN]}"), [], ["the capability CHOWN"]),
        (
            with_context("capabilities: {add: [BPF]}"),
            ["the capability BPF"],
            ["the capability BPF", "capabilities that are not dropped"],
        ),
        (with_context("runAsNonRoot: false"), [], ["runAsNonRoot is not set"]),
        (with_context("runAsUser: 0"), [], ["runAsUser 0"]),
        (
            with_context("seccompProfile: {type: Unconfined}"),
            ["seccompProfile Unconfined"],
            ["seccompProfile Unconfined"],
        ),
        (with_context("seLinuxOptions: {type: spc_t}"), ["seLinuxOptions"], ["seLinuxOptions"]),
        (with_context("procMount: Unmasked"), ["procMount Unmasked"], ["procMount Unmasked"]),
        (
            GOOD | {"securityContext": {}},
            [],
            ["runAsNonRoot is not set", "seccompProfile is not set"],
        ),
        (
            GOOD | {"securityContext": GOOD["securityContext"] | {"sysctls": [{"name": "a.b"}]}},
            ["the sysctl a.b"],
            ["the sysctl a.b"],
        ),
    ],
)
def test_the_levels_of_pod_security(spec: Body, baseline: list[str], restricted: list[str]) -> None:
    assert security.against("privileged", spec) == []
    assert security.against("baseline", spec) == baseline
    assert security.against("restricted", spec) == restricted


def test_the_namespace_has_the_enforced_level() -> None:
    wanting, space = agent("hostPID: true"), parsed("{apiVersion: v1, kind: Namespace}")
    space["metadata"] = {"name": "logging"}
    assert not list(cluster_rules.admitted.check(context(wanting)))
    assert not list(cluster_rules.admitted.check(context(wanting, space)))
    space["metadata"]["labels"] = {"pod-security.kubernetes.io/enforce": "baseline"}
    (violation,) = cluster_rules.admitted.check(context(wanting, space))
    assert (
        violation.message == "the namespace enforces the level baseline, so that no pod can be "
        "created; violations: hostPID"
    )


def node(name: str, **allocatable: str) -> Body:
    status = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": allocatable}
    metadata = {"name": name, "labels": {}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


def asking(name: str, memory: str, **spec: Any) -> Body:
    resources = {"requests": {"memory": memory}}
    containers = [{"name": "agent", "image": IMAGE, "resources": resources}]
    return daemonset(name, containers=containers, **spec)


def room(*bodies: Body, live: tuple[Body, ...] = ()) -> list[str]:
    nodes = [node("a", memory="1Gi"), node("b", memory="4Gi"), node("c")]
    found = prepared(
        *bodies,
        live=cluster_snapshot.assemble([*nodes, *live]),
        settings={"rules": {"DS605": True}},
    )
    return messages("DS605", found.findings)


def test_pods_outside_the_repository_use_capacity_first() -> None:
    assert room(asking("agent", "800Mi")) == []
    full = "agent: does not fit on 1 node: a (Insufficient memory)"
    assert room(asking("agent", "800Mi"), live=(asking("proxy", "400Mi"),)) == [full]
    assert room(asking("agent", "800Mi"), live=(asking("agent", "400Mi"),)) == []


def test_the_higher_priority_has_the_room() -> None:
    first = asking("z", "800Mi", priorityClassName="system-node-critical")
    assert room(first, asking("a", "800Mi")) == [
        "a: does not fit on 1 node: a (Insufficient memory)"
    ]


def test_nodes_without_allocatable_resources_are_not_checked() -> None:
    assert room(asking("agent", "8000Gi")) == [
        "agent: does not fit on 2 nodes: a, b (Insufficient memory)"
    ]


TEAM = parsed(
    "properties: {metadata: {required: [labels], properties: {labels: {required: [team]}}}}"
)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"schema": TEAM}, ["agent: team: metadata: 'labels' is a required property"]),
        ({"schema": TEAM, "message": "name a team"}, ["agent: team: name a team"]),
        ({"schema": TEAM, "kinds": ["Deployment"]}, []),
        ({"schema": {}}, []),
    ],
)
def test_a_rule_of_the_repositorys_own(rule: Body, words: list[str]) -> None:
    findings = prepared(daemonset(), settings={"custom": [{"name": "team", **rule}]}).findings
    assert messages("DS901", findings) == words
    assert not any(finding.refused for finding in findings)


def test_a_rule_that_fails_is_reported_and_the_others_continue() -> None:
    bundle = prepared(daemonset("a"), daemonset("b", priorityClassName="system-x")).bundle
    # a census that no rule over nodes can look at
    broken = ClusterContext(bundle.manifests, census=3)  # type: ignore[arg-type]
    rules = [finding.rule for finding in check(bundle, world.snapshot({}), broken)]
    assert rules.count("DS313") == 1
    over_nodes = [one for one in cluster_rules.RULES if one.on and one.id.startswith("DS6")]
    assert rules.count("DS904") >= len(over_nodes)


def test_equal_rollouts_are_played_once_and_name_their_own_nodes() -> None:
    played = change_forecast.RolloutForecasts()
    sides = daemonset(image="x:1"), daemonset(image="x:2")
    others = daemonset("other", image="y:1"), daemonset("other", image="y:2")
    for body in (*sides, *others):
        body["spec"]["updateStrategy"] = {"rollingUpdate": {"maxUnavailable": 1}}
    first = played.of(*sides, [Node("a1"), Node("a2", ready=False)])
    again = played.of(*others, [Node("b1"), Node("b2", ready=False)])
    assert (first.waiting, again.waiting) == (("a1", "a2"), ("b1", "b2"))
    assert len(played.played) == 1
    played.of(*sides, [Node("a1"), Node("a2")])
    assert len(played.played) == 2
