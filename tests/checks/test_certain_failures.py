"""What certainly fails when the pod runs is an error without a class and without a strict
profile.
"""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.checks.engine import catalogue
from gitops_ds.cli.snapshot import cluster_snapshot
from gitops_ds.core.live import Live
from tests.checks.test_cluster_rules import Body, prepared
from tests.plan.world import daemonset


def with_container(**more: Any) -> Body:
    image = "registry.example.com/agent:1"
    return daemonset(containers=[{"name": "agent", "image": image, **more}])


def priority(name: str, **more: Any) -> Body:
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    return {**kind, "metadata": {"name": name}, "value": 1000, **more}


def settings(**data: str) -> Body:
    metadata = {"name": "settings", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def with_variable(key: str, **more: Any) -> Body:
    reference = {"name": "settings", "key": key, **more}
    return with_container(env=[{"name": "LEVEL", "valueFrom": {"configMapKeyRef": reference}}])


LIVE = cluster_snapshot.assemble(
    [priority("system-node-critical"), priority("agents"), priority("last", value=-10)]
)
PROBED = with_container(
    ports=[{"name": "metrics", "containerPort": 9100}],
    readinessProbe={"httpGet": {"port": "metric"}},
)
MOUNTED = with_container(volumeMounts=[{"name": "logs", "mountPath": "/logs"}])
OF_SETTINGS = {"name": "settings", "items": [{"key": "b", "path": "b"}]}


@pytest.mark.parametrize(
    ("rule", "bodies", "live"),
    [
        pytest.param("DS408", [PROBED], None, id="a probe names a port that no container has"),
        pytest.param("DS415", [MOUNTED], None, id="a mount has no volume"),
        pytest.param(
            "DS421",
            [with_variable("levle"), settings(level="info")],
            None,
            id="a variable's key",
        ),
        pytest.param(
            "DS421",
            [daemonset(volumes=[{"name": "a", "configMap": OF_SETTINGS}]), settings(level="info")],
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
def test_it_is_an_error_for_every_user(rule: str, bodies: list[Body], live: Live | None) -> None:
    findings = prepared(*bodies, live=live).findings
    assert [one.severity.value for one in findings if one.rule == rule] == ["error"]


@pytest.mark.parametrize(
    ("bodies", "live"),
    [
        ([with_variable("level"), settings(level="info")], None),
        ([with_variable("other", optional=True), settings(level="info")], None),
        ([with_variable("ca.crt"), settings()], None),
        ([with_variable("level")], None),
        ([daemonset(priorityClassName="agents")], LIVE),
        ([daemonset(priorityClassName="own"), priority("own")], LIVE),
        ([daemonset(priorityClassName="elsewhere")], None),
        ([daemonset(priorityClassName="elsewhere")], cluster_snapshot.simulated(3)),
    ],
)
def test_an_object_that_may_exist_is_not_reported_as_missing(
    bodies: list[Body], live: Live | None
) -> None:
    assert {one.rule for one in prepared(*bodies, live=live).findings}.isdisjoint(
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
    bodies: list[Body], live: Live | None, words: str
) -> None:
    reported = [one for one in prepared(*bodies, live=live).findings if one.rule == "DS316"]
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
    findings = prepared(with_container(image="agent:latest")).findings
    printed = {one.rule: one.severity.value for one in findings}
    assert printed
    for rule, severity in printed.items():
        assert severity in [
            part.partition(";")[0] for part in rows[rule].split(" | ")[3].split("<br>")
        ], rule
