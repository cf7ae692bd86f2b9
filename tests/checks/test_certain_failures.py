"""What certainly fails when the pod runs is an error without a class and without a strict
profile.
"""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.checks.engine import catalogue
from gitops_ds.commands import cluster_snapshot
from gitops_ds.model.finding import Finding
from gitops_ds.model.live import Live
from gitops_ds.pipeline import prepare
from tests.plan import world
from tests.plan.world import daemonset

CONTAINER: dict[str, Any] = {"name": "agent", "image": "registry.example.com/agent:1"}
PORTS = [{"name": "metrics", "containerPort": 9100}]


def priority(name: str, **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": 1000,
        **more,
    }


def settings(**data: str) -> dict[str, Any]:
    meta = {"name": "settings", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def variable(key: str, **more: Any) -> dict[str, Any]:
    reference = {"name": "settings", "key": key, **more}
    return {**CONTAINER, "env": [{"name": "LEVEL", "valueFrom": {"configMapKeyRef": reference}}]}


LIVE = cluster_snapshot.assemble(
    [priority("system-node-critical"), priority("agents"), priority("last", value=-10)]
)


def findings(*bodies: dict[str, Any], live: Live | None = None) -> list[Finding]:
    files = {f"{index}.json": body for index, body in enumerate(bodies)}
    return list(prepare.prepare(world.snapshot(files), live=live).findings)


@pytest.mark.parametrize(
    ("rule", "bodies", "live"),
    [
        pytest.param(
            "DS408",
            [
                daemonset(
                    containers=[
                        {
                            **CONTAINER,
                            "ports": PORTS,
                            "readinessProbe": {"httpGet": {"port": "metric"}},
                        }
                    ]
                )
            ],
            None,
            id="a probe names a port that no container declares",
        ),
        pytest.param(
            "DS415",
            [
                daemonset(
                    containers=[
                        {**CONTAINER, "volumeMounts": [{"name": "logs", "mountPath": "/logs"}]}
                    ]
                )
            ],
            None,
            id="a mount has no volume",
        ),
        pytest.param(
            "DS421",
            [daemonset(containers=[variable("levle")]), settings(level="info")],
            None,
            id="a variable's key",
        ),
        pytest.param(
            "DS421",
            [
                daemonset(
                    volumes=[
                        {
                            "name": "a",
                            "configMap": {"name": "settings", "items": [{"key": "b", "path": "b"}]},
                        }
                    ]
                ),
                settings(level="info"),
            ],
            None,
            id="a volume's key",
        ),
        pytest.param(
            "DS313",
            [daemonset(priorityClassName="no-such-class")],
            LIVE,
            id="a priority that the cluster has not",
        ),
        pytest.param(
            "DS313",
            [daemonset(priorityClassName="agent"), priority("agents")],
            None,
            id="nor the commit",
        ),
    ],
)
def test_it_is_an_error_for_every_user(
    rule: str, bodies: list[dict[str, Any]], live: Live | None
) -> None:
    reported = [one for one in findings(*bodies, live=live) if one.rule == rule]
    assert [one.severity.value for one in reported] == ["error"]


@pytest.mark.parametrize(
    ("bodies", "live"),
    [
        ([daemonset(containers=[variable("level")]), settings(level="info")], None),
        ([daemonset(containers=[variable("other", optional=True)]), settings(level="info")], None),
        ([daemonset(containers=[variable("ca.crt")]), settings()], None),
        ([daemonset(containers=[variable("level")])], None),
        ([daemonset(priorityClassName="agents")], LIVE),
        ([daemonset(priorityClassName="own"), priority("own")], LIVE),
        ([daemonset(priorityClassName="elsewhere")], None),
        ([daemonset(priorityClassName="elsewhere")], cluster_snapshot.simulated(3)),
    ],
)
def test_an_object_that_may_exist_is_not_reported_as_missing(
    bodies: list[dict[str, Any]], live: Live | None
) -> None:
    assert {one.rule for one in findings(*bodies, live=live)}.isdisjoint(
        {"DS313", "DS408", "DS415", "DS421"}
    )


@pytest.mark.parametrize(
    ("bodies", "live", "words"),
    [
        ([daemonset(priorityClassName="last")], LIVE, "has the value -10"),
        (
            [daemonset(priorityClassName="low"), priority("low", preemptionPolicy="Never")],
            None,
            "never preempts",
        ),
        ([daemonset(priorityClassName="agents")], LIVE, ""),
    ],
)
def test_a_priority_that_holds_an_agent_back_is_a_warning(
    bodies: list[dict[str, Any]], live: Live | None, words: str
) -> None:
    reported = [one for one in findings(*bodies, live=live) if one.rule == "DS316"]
    assert [(one.severity.value, words in one.message) for one in reported] == (
        [("warning", True)] if words else []
    )


def test_the_list_of_rules_has_the_severity_that_is_printed() -> None:
    rows = {
        line.split("[")[1][:5]: line
        for line in catalogue.as_markdown().splitlines()
        if line.startswith("| [DS")
    }
    assert "| error |" in rows["DS421"]
    assert "| error |" in rows["DS101"]
    assert "| warning; error with a class or `strict` |" in rows["DS209"]
    bodies = [daemonset(containers=[{**CONTAINER, "image": "agent:latest"}])]
    printed = {one.rule: one.severity.value for one in findings(*bodies)}
    assert printed
    for rule, severity in printed.items():
        assert severity in [
            part.partition(";")[0] for part in rows[rule].split(" | ")[3].split("<br>")
        ], rule


def test_the_list_of_rules_has_one_row_for_each_rule() -> None:
    ids = [
        line.split("[")[1][:5]
        for line in catalogue.as_markdown().splitlines()
        if line.startswith("| [DS")
    ]
    assert ids == sorted({row.id for row in catalogue.rows()})
