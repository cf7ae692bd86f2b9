"""Stage events of staged rollouts as Kubernetes events, metrics and notifications."""

from __future__ import annotations

import pytest

from gitops_ds.model.decision import PromoteRevision, RecordRollout, ReleasePod
from gitops_ds.model.events.agents import RolloutFailed
from gitops_ds.model.events.base import ActionFailed, Event, Performed
from gitops_ds.model.events.rollouts import (
    RolloutHalted,
    RolloutHeld,
    RolloutProgressed,
    StageNodesReplaced,
    StageOpened,
    StagePassed,
)
from gitops_ds.model.objects import CONTROLLER_REVISION, Key
from gitops_ds.model.rollouts.staged_rollout import (
    Halt,
    HoldKind,
    RolloutRecord,
    StageHold,
    StagesDecision,
)
from gitops_ds.telemetry.kube_events import EventRecorder
from gitops_ds.telemetry.metrics import Metrics
from gitops_ds.telemetry.notifications import NotificationBuilder
from tests.report.events import AGENT, COMMIT, POD, made

STAGES = StagesDecision((), frozenset(), (), (), 0, 1, RolloutRecord())
HALT = Halt(5.0, "canary", "CrashLoopBackOff on node-1")
EVENTS: list[tuple[Event, str]] = [
    (StageOpened(1.0, AGENT, COMMIT, "canary", 2), "opened"),
    (StagePassed(1.0, AGENT, COMMIT, "canary", 2), "passed"),
    (RolloutHeld(1.0, AGENT, COMMIT, StageHold("freeze", 86400.0, kind=HoldKind.FREEZE)), "held"),
    (RolloutHalted(1.0, AGENT, COMMIT, HALT), "halted"),
    (
        StageNodesReplaced(
            1.0,
            AGENT,
            COMMIT,
            "canary",
            ("node-1 (NodeGone)",),
            tuple(f"node-{n}" for n in range(2, 9)),
        ),
        "replaced",
    ),
]


@pytest.mark.parametrize(("event", "label"), EVENTS)
def test_a_stage_event_is_counted(event: Event, label: str) -> None:
    metrics = Metrics()
    metrics.handle(event)
    line = f'gitopsds_rollout_stage_events_total{{event="{label}"}} 1.0'
    assert line in metrics.text().decode().splitlines()


def test_kube_events_of_a_rollout_name_the_uid_of_the_daemonset() -> None:
    recorder = EventRecorder()
    assert recorder.kube_events(RolloutProgressed(1.0, AGENT, "the-uid", COMMIT, STAGES)) == ()
    for event, _ in EVENTS:
        (kube_event,) = recorder.kube_events(event)
        assert (kube_event.about.uid, kube_event.about.name) == ("the-uid", "agent")
        assert kube_event.reason == event.definition.kind
        assert kube_event.warning is isinstance(event, RolloutHalted)


def test_the_kube_event_of_a_hold_names_its_end() -> None:
    (kube_event,) = EventRecorder().kube_events(EVENTS[2][0])
    assert (
        kube_event.message
        == "aaaaaaaaaaaa: the rollout is on hold: freeze, until 1970-01-02T00:00:00Z"
    )


def test_the_kube_event_of_replaced_nodes_names_the_first_ones() -> None:
    (kube_event,) = EventRecorder().kube_events(EVENTS[4][0])
    assert kube_event.message == (
        "aaaaaaaaaaaa: stage canary takes node-2, node-3, node-4, node-5, node-6 and 2 more "
        "instead of node-1 (NodeGone)"
    )


def test_the_writes_of_a_rollout_are_not_events_of_pods() -> None:
    revision = Key(CONTROLLER_REVISION.group, CONTROLLER_REVISION.kind, "logging", "agent-1")
    for action in (
        ReleasePod(POD, "u", "node-1", 1.0, "why"),
        RecordRollout(revision, "u", "{}", "why"),
        PromoteRevision(revision, "u", {}, "why"),
    ):
        assert EventRecorder().kube_events(Performed(1.0, AGENT, action, action.key)) == ()
        failed = made(ActionFailed, 0)
        (kube_event,) = EventRecorder().kube_events(ActionFailed(1.0, AGENT, action, failed.error))
        assert kube_event.warning
        assert kube_event.reason in ("FailedCreate", "FailedHistory")


def test_a_halt_is_one_notification() -> None:
    builder = NotificationBuilder()
    halted = builder.handle(EVENTS[3][0], "git.example.com/fleet")
    failed = builder.handle(RolloutFailed(2.0, AGENT, "u", COMMIT, 2, "halted", True), "")
    assert halted is not None
    assert failed is not None
    assert (halted.topic, halted.agent) == ("failed", "logging/agent")
    assert "CrashLoopBackOff on node-1" in halted.message
    assert halted.id == failed.id
    other = builder.handle(RolloutFailed(2.0, AGENT, "u", COMMIT, 2, "no progress"), "")
    assert other is not None
    assert other.id != halted.id
