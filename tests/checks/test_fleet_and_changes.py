"""Rules over a whole fleet, and over a change: one row, one sentence."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.checks.change import object_changes
from gitops_ds.checks.cluster import cluster_rules
from gitops_ds.checks.engine import catalogue
from gitops_ds.checks.engine.contexts import ChangeRule, ChangeSides, ClusterRule
from gitops_ds.commands import cluster_snapshot
from gitops_ds.model.finding import Finding
from gitops_ds.model.live import Live
from gitops_ds.pipeline import prepare
from tests.plan import world
from tests.plan.world import daemonset

THREE_NODES = cluster_snapshot.simulated(3)


def with_port(name: str, port: int, **spec: Any) -> dict[str, Any]:
    container = {
        "name": "agent",
        "image": "registry.example.com/agent:1",
        "ports": [{"containerPort": port, "hostPort": port}],
    }
    return daemonset(name, containers=[container], **spec)


def selecting(name: str, **labels: str) -> dict[str, Any]:
    body = daemonset(name)
    body["spec"]["selector"] = {"matchLabels": labels}
    body["spec"]["template"]["metadata"]["labels"] = labels
    return body


def classed(body: dict[str, Any]) -> dict[str, Any]:
    return {
        **body,
        "metadata": {**body["metadata"], "annotations": {"gitops-ds.io/class": "monitoring"}},
    }


def found(*bodies: dict[str, Any], live: Live = THREE_NODES) -> list[str]:
    prepared = prepare.prepare(
        world.snapshot({f"{index}.json": body for index, body in enumerate(bodies)}), live=live
    )
    return summaries(prepared.findings, {rule.id for rule in cluster_rules.RULES})


def summaries(findings: tuple[Finding, ...], expected: set[str]) -> list[str]:
    return [
        f"{f.rule} {f.severity} {f.object.name if f.object else ''}"
        for f in findings
        if f.rule in expected
    ]


GPU: dict[str, Any] = {"nodeSelector": {"gpu": "yes"}}
AGENTS = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "agents"},
    "value": 1000,
}
LINUX: dict[str, Any] = {"nodeSelector": {"kubernetes.io/os": "linux"}}


@pytest.mark.parametrize(
    ("bodies", "expected"),
    [
        pytest.param(
            [daemonset("a"), daemonset("b")], [], id="two agents with labels of their own"
        ),
        pytest.param(
            [selecting("a", app="x"), selecting("b", app="x")],
            ["DS104 warning a", "DS104 warning b"],
            id="one selector",
        ),
        pytest.param(
            [selecting("a", app="x"), selecting("b", app="x", tier="y")],
            ["DS104 warning a"],
            id="a wider selector",
        ),
        pytest.param(
            [selecting("a", app="x"), classed(selecting("b", app="x"))],
            ["DS104 warning a", "DS104 error b"],
            id="a class",
        ),
        pytest.param(
            [with_port("a", 9100), with_port("b", 9100)],
            ["DS601 warning a"],
            id="one port of the same nodes",
        ),
        pytest.param([with_port("a", 9100), with_port("b", 9101)], [], id="a port each"),
        pytest.param(
            [with_port("a", 9100), with_port("b", 9100, **GPU)],
            ["DS604 warning b", "DS307 warning b"],
            id="one port, but no node runs both",
        ),
        pytest.param(
            [with_port("a", 9100, hostNetwork=True), with_port("b", 9100)],
            ["DS601 warning a"],
            id="the host's network",
        ),
        pytest.param([daemonset("a", **LINUX)], [], id="a selector that some nodes meet"),
        pytest.param(
            [daemonset("a", **GPU)],
            ["DS604 warning a", "DS307 warning a"],
            id="a selector that no node meets",
        ),
        pytest.param(
            [daemonset("a", priorityClassName="system-node-critical")],
            [],
            id="a priority that is always there",
        ),
        pytest.param(
            [daemonset("a", priorityClassName="system-agents")],
            ["DS313 error a"],
            id="a priority that can't be there",
        ),
        pytest.param(
            [daemonset("a", priorityClassName="agents")],
            [],
            id="a priority that may be made elsewhere",
        ),
        pytest.param(
            [AGENTS, daemonset("a", priorityClassName="agents")],
            [],
            id="a priority of the repository",
        ),
        pytest.param(
            [AGENTS, daemonset("a", priorityClassName="agent")],
            ["DS313 error a"],
            id="another one than the repository's",
        ),
    ],
)
def test_fleet(bodies: list[dict[str, Any]], expected: list[str]) -> None:
    assert found(*bodies) == expected


def test_without_known_nodes_no_finding_is_about_nodes() -> None:
    assert found(with_port("a", 9100), with_port("b", 9100, **GPU), live=Live()) == []


def changed(base: list[dict[str, Any]], head: list[dict[str, Any]]) -> list[str]:
    sides = [
        world.snapshot({f"{index}.json": body for index, body in enumerate(bodies)})
        for bodies in (base, head)
    ]
    before, after = map(prepare.prepare, sides)
    change = ChangeSides(before.fleet, after.fleet)
    return summaries(
        prepare.compared(change, after, sides[1]).findings,
        {rule.id for rule in object_changes.RULES},
    )


@pytest.mark.parametrize(
    ("base", "head", "expected"),
    [
        pytest.param(
            [daemonset()], [daemonset(image="registry.example.com/agent:2")], [], id="another image"
        ),
        pytest.param(
            [selecting("a", app="x")],
            [selecting("a", app="y")],
            ["DS103 error a"],
            id="another selector",
        ),
        pytest.param(
            [selecting("a", app="x", tier="y")],
            [selecting("a", tier="y", app="x")],
            [],
            id="in another order",
        ),
        pytest.param([daemonset("a")], [], ["DS702 warning a"], id="an agent is taken away"),
        pytest.param(
            [daemonset("a")],
            [daemonset("b")],
            ["DS701 warning b"],
            id="the same image under another name",
        ),
        pytest.param(
            [daemonset("a")],
            [daemonset("b", "registry.example.com/other:1")],
            ["DS702 warning a"],
            id="one goes, another comes",
        ),
        pytest.param([], [daemonset("a")], [], id="a new agent"),
    ],
)
def test_changes(
    base: list[dict[str, Any]], head: list[dict[str, Any]], expected: list[str]
) -> None:
    assert changed(base, head) == expected


@pytest.mark.parametrize(
    "rule", [*cluster_rules.RULES, *object_changes.RULES], ids=lambda rule: rule.id
)
def test_each_has_a_page(rule: ClusterRule | ChangeRule) -> None:
    page = catalogue.page_of(rule.id)
    assert page is not None
    first = next(row for row in catalogue.rows() if row.id == rule.id)
    assert page.text.startswith(f"# {rule.id}: {first.summary}\n")
    assert page.wrong
    assert page.right
    assert page.sources
