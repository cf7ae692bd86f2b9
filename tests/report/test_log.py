"""The log: its lines and documents, and the events of each level."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gitops_ds.core import plain_text
from gitops_ds.core.decision import Action, Adopt, CreatePod, DeleteCause, DeletePod
from gitops_ds.core.errors import Forbidden
from gitops_ds.core.events import agents, base
from gitops_ds.core.events.base import Event
from gitops_ds.core.events.definition import Level
from gitops_ds.core.health import Health, HealthState
from gitops_ds.core.redaction import texts as redacted
from gitops_ds.notify import log_lines
from gitops_ds.notify.kube_events import EventRecorder, InvolvedObject
from gitops_ds.notify.notifications import NotificationBuilder
from tests import goldens
from tests.report.events import AGENT, COMMIT, POD, TEXT, concrete, samples

STATE = InvolvedObject("v1", "ConfigMap", "gitops-ds", "gitops-ds-x")


def test_a_message_of_the_start_is_an_object_as_well() -> None:
    text = "ready: following https://dana:hunter2@git.example.com/agents"
    assert log_lines.message(1.5, Level.INFO, text) == {
        "time": 1.5,
        "level": "info",
        "kind": "Message",
        "message": "ready: following https://<redacted>@git.example.com/agents",
    }


CREATE = CreatePod("node-1", {}, "seed", "the node has no pod")
DELETE = DeletePod(POD, "uid", "node-2", DeleteCause.OUTDATED, "it runs an earlier template")


@pytest.mark.parametrize(
    ("action", "line"),
    [
        (CREATE, "CreatePod logging/agent-x7f2k on node-1: the node has no pod"),
        (DELETE, "DeletePod logging/agent-x7f2k on node-2: it runs an earlier template"),
        (Adopt(POD, "uid", "it has no owner"), "Adopt logging/agent-x7f2k: it has no owner"),
    ],
)
def test_an_action_names_its_node_and_its_object(action: Action, line: str) -> None:
    event = base.Performed(1.0, AGENT, action, POD)
    assert log_lines.line(event) == f"DaemonSet logging/agent: {line}"


def test_an_action_that_failed_names_its_node_and_the_error() -> None:
    failed = base.ActionFailed(1.0, AGENT, CREATE, Forbidden("no", 403))
    assert log_lines.line(failed) == "DaemonSet logging/agent: CreatePod on node-1 failed: no"
    document = log_lines.as_json(failed) or {}
    assert (document["action"], document["node"]) == ("CreatePod", "node-1")


def test_a_change_of_health_has_both_states() -> None:
    health = Health(HealthState.DEGRADED, "unhealthy on node-1")
    event = agents.HealthChanged(1.0, AGENT, "u", HealthState.HEALTHY, health, COMMIT)
    document = log_lines.as_json(event) or {}
    values = [document[name] for name in ("health", "before", "message")]
    assert values == ["Degraded", "Healthy", "unhealthy on node-1"]


# `TEXT`, also without its secrets
_SHOWN = re.compile(f"{re.escape(TEXT)}|{re.escape(redacted.words(TEXT))}")


def texts(event: Event) -> Iterator[str]:
    if line := log_lines.line(event):
        yield f"log: {line}"
    for kube in EventRecorder(STATE).kube_events(event):
        yield f"kube: {kube.message}"
    if notification := NotificationBuilder().handle(event, "git.example.com/fleet"):
        yield f"notification: {notification.message}"


def test_the_texts_of_every_event() -> None:
    blocks = []
    for kind in concrete():
        every = {text for event in samples(kind) for text in texts(event)}
        lines = {plain_text.line(_SHOWN.sub("TEXT", text)) for text in every}
        blocks.append("\n  ".join([kind.__name__, *sorted(lines)]))
    goldens.check(Path(__file__).parent / "goldens/texts.txt", "\n".join(blocks) + "\n")


@pytest.mark.parametrize("least", log_lines.LEVELS)
def test_a_log_has_the_events_of_its_level_and_above(least: str) -> None:
    events = [event for kind in concrete() for event in samples(kind)]
    kept = {event.level for event in events if log_lines.matters(event, least)}
    assert kept == set(log_lines.LEVELS[log_lines.LEVELS.index(least) :])


def test_a_line_of_the_text_log_has_time_and_level() -> None:
    assert log_lines.stamped(0.0, Level.INFO, "ready") == "1970-01-01T00:00:00Z info    ready"
    forged = log_lines.stamped(0.0, Level.INFO, "denied\n1970-01-01T00:00:00Z info    ready")
    assert forged.splitlines()[1] == "  1970-01-01T00:00:00Z info    ready"
