"""The log: a level for each fact, and no secret in any, for any content of the objects that facts
are about.
"""

from __future__ import annotations

import orjson
import pytest

from gitops_ds.daemonset import decide
from gitops_ds.errors import Forbidden
from gitops_ds.model.change import Change, Operation, Plan
from gitops_ds.model.decision import Adopt, CreatePod, DeleteCause, DeletePod
from gitops_ds.model.events import agents, base, deployer
from gitops_ds.model.events.commits import CommitRejected
from gitops_ds.model.events.definition import Level
from gitops_ds.model.finding import Finding, Place, refusal
from gitops_ds.model.health import Health, HealthState, LossCause, NodeLoss
from gitops_ds.model.objects import CommitId, Digest, Key
from gitops_ds.model.skip_reasons import Skipped, SkipReason
from gitops_ds.model.sources.bundle import Manifest, Origin, Pointer
from gitops_ds.telemetry import kube_events, log_lines
from tests.daemonset.world import World, daemonset

SECRET = "hunter2-in-the-clear"
KEY = Key("", "Secret", "logging", "token")
AGENT = Key("apps", "DaemonSet", "logging", "agent")
COMMIT = CommitId("a" * 40)


def decided() -> base.Decided:
    body = daemonset()
    body["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "TOKEN", "value": SECRET}]
    seen = World(body, 2).observe()
    return base.Decided(1.0, AGENT, decide.decide(seen), True, seen)


def change() -> Change:
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "token"},
        "stringData": {"token": SECRET},
    }
    return Change(
        Operation.CREATE, KEY, Manifest(KEY, body, Digest("d"), Origin(Pointer("a.yaml", 0, ())))
    )


def mistake() -> Finding:
    return refusal(
        "DS004",
        f'write "{SECRET}", with quotes',
        Place("a.yaml", 3, 5),
        object=KEY,
        path=("stringData", "token"),
    )


def facts() -> list[tuple[base.Event, str]]:
    """Facts of every part, about objects that hold a secret, each with its level."""
    turn, refused = decided(), Skipped(SkipReason.REFUSED, "the API server refuses it")
    action = turn.decision.actions[0]
    error = Forbidden("exceeded quota", 403, "Forbidden")
    return [
        (turn, "debug"),
        (base.ActionFailed(1.0, AGENT, action, error), "warning"),
        (base.Performed(1.0, AGENT, action, AGENT), "info"),
        (deployer.Planned(1.0, Plan(COMMIT, "eu-1", (change(),), (), "h")), "debug"),
        (deployer.Applied(1.0, change(), ("a warning",)), "info"),
        (deployer.NotApplied(1.0, refused, change()), "warning"),
        (CommitRejected(1.0, COMMIT, (mistake(),)), "error"),
        (deployer.ReconcileFailed(1.0, "Git is away", 5.0), "warning"),
        (deployer.ReconcileFailed(1.0, "the branch went back"), "error"),
        (
            agents.HealthChanged(
                1.0, AGENT, "u", HealthState.HEALTHY, Health(HealthState.DEGRADED, "a node"), COMMIT
            ),
            "warning",
        ),
        (
            agents.HealthChanged(
                1.0, AGENT, "u", HealthState.DEGRADED, Health(HealthState.HEALTHY, "well"), COMMIT
            ),
            "info",
        ),
        (agents.RolloutFailed(1.0, AGENT, "u", COMMIT, 2, "the template fails"), "error"),
        (
            agents.CoverageLost(
                1.0,
                AGENT,
                "u",
                (NodeLoss("n", "", LossCause.LABEL, "why"),),
                3,
            ),
            "warning",
        ),
    ]


@pytest.mark.parametrize(("fact", "level"), facts(), ids=lambda value: type(value).__name__)
def test_an_event_has_a_level_and_no_secret(fact: base.Event, level: str) -> None:
    document = log_lines.as_json(fact)
    holding = base.Decided | deployer.Applied | deployer.Planned | CommitRejected
    assert SECRET in repr(fact) or not isinstance(fact, holding)
    assert fact.level == level
    assert document is not None
    assert document["level"] == level
    event = kube_events.kube_event(
        fact, kube_events.InvolvedObject("v1", "ConfigMap", "gitops-ds", "gitops-ds-x")
    )
    text = (
        (log_lines.line(fact) or "")
        + orjson.dumps(document).decode()
        + (event.message if event else "")
    )
    assert SECRET not in text
    assert "\n" not in text


def test_a_message_of_the_start_is_an_object_as_well() -> None:
    text = "ready: following https://dana:hunter2@git.example.com/agents"
    assert log_lines.message(1.5, Level.INFO, text) == {
        "time": 1.5,
        "level": "info",
        "kind": "Message",
        "message": "ready: following https://<redacted>@git.example.com/agents",
    }


def test_an_action_names_its_node_and_its_object() -> None:
    pod = Key("", "Pod", "logging", "agent-x")
    create = CreatePod("node-1", {}, "seed", "the node has no pod")
    end = DeletePod(pod, "uid", "node-2", DeleteCause.OUTDATED, "it runs an earlier template")
    done, failed = (
        base.Performed(1.0, AGENT, create, pod),
        base.ActionFailed(1.0, AGENT, create, Forbidden("no", 403)),
    )
    adopted = base.Performed(1.0, AGENT, Adopt(pod, "uid", "it has no owner"), pod)
    assert (
        log_lines.line(done)
        == "DaemonSet logging/agent: CreatePod logging/agent-x on node-1: the node has no pod"
    )
    assert log_lines.line(failed) == "DaemonSet logging/agent: CreatePod on node-1 failed: no"
    ended = log_lines.line(base.Performed(1.0, AGENT, end, pod))
    assert (
        ended == "DaemonSet logging/agent: DeletePod logging/agent-x on node-2: it runs an earlier "
        "template"
    )
    assert (
        log_lines.line(adopted) == "DaemonSet logging/agent: Adopt logging/agent-x: it has no owner"
    )
    assert (log_lines.as_json(done) or {}).items() >= {
        "action": "CreatePod",
        "node": "node-1",
        "target": "Pod logging/agent-x",
    }.items()
    assert (log_lines.as_json(failed) or {}).items() >= {
        "action": "CreatePod",
        "node": "node-1",
    }.items()


def test_a_change_of_health_is_logged_and_a_healthy_agent_at_the_start_is_not() -> None:
    ill = agents.HealthChanged(
        1.0,
        AGENT,
        "u",
        HealthState.HEALTHY,
        Health(HealthState.DEGRADED, "unhealthy on node-1"),
        COMMIT,
    )
    document = log_lines.as_json(ill) or {}
    assert (
        document.items()
        >= {"health": "Degraded", "before": "Healthy", "message": "unhealthy on node-1"}.items()
    )
    first = agents.HealthChanged(1.0, AGENT, "u", None, Health(HealthState.HEALTHY, "well"), COMMIT)
    assert (first.level, ill.level) == ("debug", "warning")


@pytest.mark.parametrize("least", log_lines.LEVELS)
def test_a_log_has_the_events_of_its_level_and_above(least: str) -> None:
    kept = {level for event, level in facts() if log_lines.matters(event, least)}
    assert kept == set(log_lines.LEVELS[log_lines.LEVELS.index(least) :])


def test_a_line_of_the_text_log_has_time_and_level() -> None:
    assert log_lines.stamped(0.0, Level.INFO, "ready") == "1970-01-01T00:00:00Z info    ready"
    forged = log_lines.stamped(0.0, Level.INFO, "denied\n1970-01-01T00:00:00Z info    ready")
    assert forged.splitlines()[1] == "  1970-01-01T00:00:00Z info    ready"
