"""Stage events of staged rollouts as Kubernetes events and notifications."""

from __future__ import annotations

from gitops_ds.core.events.agents import RolloutFailed
from gitops_ds.core.events.rollouts import (
    RolloutHalted,
    RolloutHeld,
    RolloutProgressed,
    StageNodesReplaced,
)
from gitops_ds.core.rollouts.staged_rollout import (
    Halt,
    HoldKind,
    RolloutRecord,
    StageHold,
    StagesDecision,
)
from gitops_ds.notify.kube_events import EventRecorder
from gitops_ds.notify.notifications import NotificationBuilder
from tests.report.events import AGENT, COMMIT

STAGES = StagesDecision((), frozenset(), (), (), 0, 1, RolloutRecord())
HALT = Halt(5.0, "canary", "CrashLoopBackOff on node-1")
HALTED = RolloutHalted(1.0, AGENT, COMMIT, HALT)


def test_kube_events_of_a_rollout_name_the_uid_of_the_daemonset() -> None:
    recorder = EventRecorder()
    assert recorder.kube_events(RolloutProgressed(1.0, AGENT, "the-uid", COMMIT, STAGES)) == ()
    (kube_event,) = recorder.kube_events(HALTED)
    assert (kube_event.about.uid, kube_event.about.name) == ("the-uid", "agent")


def test_the_kube_event_of_a_hold_names_its_end() -> None:
    hold = StageHold("freeze", 86400.0, kind=HoldKind.FREEZE)
    (kube_event,) = EventRecorder().kube_events(RolloutHeld(1.0, AGENT, COMMIT, hold))
    assert (
        kube_event.message
        == "aaaaaaaaaaaa: the rollout is on hold: freeze, until 1970-01-02T00:00:00Z"
    )


def test_the_kube_event_of_replaced_nodes_names_the_first_ones() -> None:
    dead, taken = ("node-1 (NodeGone)",), tuple(f"node-{n}" for n in range(2, 9))
    event = StageNodesReplaced(1.0, AGENT, COMMIT, "canary", dead, taken)
    (kube_event,) = EventRecorder().kube_events(event)
    assert kube_event.message == (
        "aaaaaaaaaaaa: stage canary takes node-2, node-3, node-4, node-5, node-6 and 2 more "
        "instead of node-1 (NodeGone)"
    )


def test_a_halt_is_one_notification() -> None:
    builder = NotificationBuilder()
    halted = builder.handle(HALTED, "git.example.com/fleet")
    failed = builder.handle(RolloutFailed(2.0, AGENT, "u", COMMIT, 2, "halted", True), "")
    assert halted is not None
    assert failed is not None
    assert (halted.topic, halted.agent) == ("failed", "logging/agent")
    assert "CrashLoopBackOff on node-1" in halted.message
    assert halted.id == failed.id
    other = builder.handle(RolloutFailed(2.0, AGENT, "u", COMMIT, 2, "no progress"), "")
    assert other is not None
    assert other.id != halted.id
