"""Rules over nodes beyond their pages' examples, rules of a repository's own, and rollouts that are
played once.
"""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gitops_ds.checks.cluster import cluster_rules
from gitops_ds.checks.engine.check import check
from gitops_ds.checks.engine.contexts import ClusterContext
from gitops_ds.commands import cluster_snapshot
from gitops_ds.model.finding import Finding
from gitops_ds.model.live import Live, Node
from gitops_ds.pipeline import outlook, prepare
from tests.plan import world
from tests.plan.world import daemonset


def node(name: str, **allocatable: str) -> dict[str, Any]:
    status = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": allocatable}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {}},
        "status": status,
    }


def asking(name: str, memory: str, **spec: Any) -> dict[str, Any]:
    containers = [
        {
            "name": "agent",
            "image": f"registry.example.com/{name}:1",
            "resources": {"requests": {"memory": memory}},
        }
    ]
    return daemonset(name, containers=containers, **spec)


def found(
    settings: dict[str, Any], *bodies: dict[str, Any], live: Live | None = None
) -> tuple[Finding, ...]:
    own = {"version": "v1", "manifests": ["/*.json"], **settings}
    files = {f"{index}.json": body for index, body in enumerate(bodies)}
    return prepare.prepare(
        world.snapshot({"gitops-ds.yaml": orjson.dumps(own), **files}), live=live or Live()
    ).findings


def messages(rule: str, findings: tuple[Finding, ...]) -> list[str]:
    return [
        f"{finding.object.name if finding.object else ''}: {finding.message}"
        for finding in findings
        if finding.rule == rule
    ]


def room(*bodies: dict[str, Any], running: tuple[dict[str, Any], ...] = ()) -> list[str]:
    live = cluster_snapshot.assemble([node("a", memory="1Gi"), node("b", memory="4Gi"), *running])
    return messages("DS605", found({"rules": {"DS605": True}}, *bodies, live=live))


def test_pods_outside_the_repository_use_capacity_first() -> None:
    assert room(asking("agent", "800Mi")) == []
    full = "agent: does not fit on 1 node: a (Insufficient memory)"
    assert room(asking("agent", "800Mi"), running=(asking("proxy", "400Mi"),)) == [full]
    assert room(asking("agent", "800Mi"), running=(asking("agent", "400Mi"),)) == []


def test_the_higher_priority_has_the_room() -> None:
    first = asking("z", "800Mi", priorityClassName="system-node-critical")
    assert room(first, asking("a", "800Mi")) == [
        "a: does not fit on 1 node: a (Insufficient memory)"
    ]


def test_nodes_without_allocatable_resources_are_not_checked() -> None:
    live = cluster_snapshot.assemble([node("a")])
    assert (
        messages("DS605", found({"rules": {"DS605": True}}, asking("agent", "8000Gi"), live=live))
        == []
    )


TEAM = {
    "properties": {
        "metadata": {"properties": {"labels": {"required": ["team"]}}, "required": ["labels"]}
    }
}


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"schema": TEAM}, ["agent: team: metadata: 'labels' is a required property"]),
        ({"schema": TEAM, "message": "name a team"}, ["agent: team: name a team"]),
        ({"schema": TEAM, "kinds": ["Deployment"]}, []),
        ({"schema": {}}, []),
        (
            {"schema": {"type": "nothing"}},
            [
                (
                    ": team: this is not a valid JSON schema: 'nothing' is not valid under any of "
                    "the given schemas"
                )
            ],
        ),
        (
            {"schema": {"$ref": "https://example.com/schema"}},
            [": team: the schema refers to https://example.com/schema, which is unknown"],
        ),
        (
            {"schema": {"$ref": "#"}},
            [
                (
                    ": team: the schema can't be resolved: its $ref form a cycle, "
                    "or it is nested "
                    "too deeply"
                )
            ],
        ),
    ],
)
def test_a_rule_of_the_repositorys_own(rule: dict[str, Any], words: list[str]) -> None:
    findings = found({"custom": [{"name": "team", **rule}]}, daemonset())
    assert messages("DS901", findings) == words
    assert not any(finding.refused for finding in findings)


def test_a_rule_that_fails_is_reported_and_the_others_continue() -> None:
    bundle = prepare.prepare(
        world.snapshot(
            {"a.json": daemonset("a"), "b.json": daemonset("b", priorityClassName="system-x")}
        )
    ).bundle
    broken = ClusterContext(bundle.manifests, census=3)  # type: ignore[arg-type]  # what no rule over nodes can look at
    rules = [
        finding.rule
        for finding in check(bundle, world.snapshot({}), broken)
        if finding.rule in ("DS904", "DS313")
    ]
    assert rules.count("DS313") == 1
    assert rules.count("DS904") >= len(
        [rule for rule in cluster_rules.RULES if rule.on and rule.id.startswith("DS6")]
    )


def test_equal_rollouts_are_played_once_and_name_their_own_nodes() -> None:
    played = outlook.Rehearsals()
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
