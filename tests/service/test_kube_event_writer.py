"""The Kubernetes events of the deployer and of the controller, and the limit on their number."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_ds.core import errors
from gitops_ds.core.decision import CreatePod
from gitops_ds.core.events import deployer
from gitops_ds.core.events.base import ActionFailed, Event, Performed
from gitops_ds.core.events.commits import CommitRejected, NewCommit
from gitops_ds.core.events.rollouts import RolloutHalted, StageOpened, StagePassed
from gitops_ds.core.finding import Place
from gitops_ds.core.objects import DAEMONSET, EVENT, NAMESPACE, POD, CommitId, Key
from gitops_ds.core.rollouts.staged_rollout import Halt
from gitops_ds.core.skip_reasons import Skipped, SkipReason
from gitops_ds.notify import kube_events
from gitops_ds.notify.kube_events import EventCorrelator, InvolvedObject, KubeEvent
from gitops_ds.service.kube_event_writer import COMPONENT, CONTROLLER, KubeEventWriter
from gitops_ds.source import rules
from gitops_ds.testing import simulator
from tests.simulator import setup

COMMIT = CommitId("a" * 40)
STATE = InvolvedObject("v1", "ConfigMap", "gitops-ds", "gitops-ds-x")
AGENT = InvolvedObject("apps/v1", "DaemonSet", "logging", "agent", "uid-1")
REASONS = [
    (NewCommit(1.0, COMMIT, "one", "Ann"), "NewCommit", False),
    (NewCommit(1.0, COMMIT, "one", "Ann", rewritten=True), "HistoryRewritten", True),
    (
        CommitRejected(
            1.0, COMMIT, (rules.UNKNOWN_FIELD.refusal("a typo", Place("a.yaml", 3, 1)),)
        ),
        "CommitRejected",
        True,
    ),
    (deployer.Reconciled(1.0, COMMIT, 3, ()), "Applied", False),
    (deployer.Reconciled(1.0, COMMIT, 0, ()), None, False),
    (
        deployer.Reconciled(
            1.0,
            COMMIT,
            0,
            (Skipped(SkipReason.SHARE_OF_NODES, "9 of 10 nodes would lose an agent"),),
        ),
        "PruneRefused",
        True,
    ),
    (
        deployer.ChangeSkipped(1.0, Skipped(SkipReason.REFUSED, "the API server refuses it")),
        "NotApplied",
        True,
    ),
    (
        deployer.ChangeSkipped(1.0, Skipped(SkipReason.WAITS, "another agent is not ready")),
        None,
        False,
    ),
    (deployer.ReconcileFailed(1.0, "Git is away", 5.0), "PassFailed", True),
    (deployer.Unchanged(1.0, COMMIT), None, False),
]


@pytest.mark.parametrize(("record", "reason", "warning"), REASONS)
def test_a_fact_is_one_event_with_a_reason(
    record: Event, reason: str | None, warning: bool
) -> None:
    kube_event = kube_events.kube_event(record, STATE)
    assert (
        (kube_event.reason, kube_event.warning) == (reason, warning)
        if kube_event
        else reason is None
    )


async def test_events_are_about_the_config_map_of_the_state_never_block_and_are_counted() -> None:
    async with simulator.SimulatedCluster() as cluster:
        writer = KubeEventWriter(cluster.client(), STATE)
        writing = asyncio.create_task(writer.run())
        writer.handle(deployer.ReconcileFailed(1.0, "too early: there is no namespace yet", None))
        await asyncio.sleep(1)
        await cluster.create(
            NAMESPACE,
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gitops-ds"}},
        )
        for at in range(3):
            writer.handle(NewCommit(float(at), COMMIT, "one", "Ann", rewritten=True))
        writer.handle(deployer.ReconcileFailed(2.0, "too early: there is no namespace yet", None))
        await asyncio.sleep(1)
        found = [
            body
            for body in (await cluster.list(EVENT)).items
            if body["source"].get("component") == COMPONENT
        ]
        counts = {body["reason"]: body["count"] for body in found}
        assert counts == {"HistoryRewritten": 3, "PassFailed": 2}
        assert {body["involvedObject"]["name"] for body in found} == {"gitops-ds-x"}
        writing.cancel()


async def test_the_controller_uses_the_event_reasons_of_upstream() -> None:
    async with setup.set_up(2) as there:
        telling = KubeEventWriter(there.cluster.client())
        writing = asyncio.create_task(telling.run())
        there.subscribers.append(telling.handle)
        there.begin()
        await asyncio.sleep(10)
        pods = (await there.people.list(POD)).items
        for pod, phase in zip(pods, ("Failed", "Succeeded"), strict=True):
            patch = {"status": {"phase": phase}}
            await there.people.patch(
                POD, "default", pod["metadata"]["name"], patch, subresource="status"
            )
        await asyncio.sleep(10)
        found = [
            body
            for body in (await there.people.list(EVENT)).items
            if body["source"].get("component") == CONTROLLER
        ]
        reasons = Counter(body["reason"] for body in found)
        assert reasons == {
            "SuccessfulCreate": 4,
            "SuccessfulDelete": 2,
            "FailedDaemonPod": 1,
            "SucceededDaemonPod": 1,
        }
        daemonset = await there.people.get(DAEMONSET, "default", "agent")
        assert {body["involvedObject"]["uid"] for body in found} == {daemonset["metadata"]["uid"]}
        names = {body["message"] for body in found if body["reason"] == "SuccessfulDelete"}
        assert names == {f"Deleted pod: {pod['metadata']['name']}" for pod in pods}
        writing.cancel()


def event_about(
    message: str, reason: str = "SuccessfulCreate", about: InvolvedObject = AGENT
) -> KubeEvent:
    return KubeEvent(about, reason, message)


def test_the_same_again_raises_the_count_of_its_event() -> None:
    condenser = EventCorrelator()
    first, again = (
        condenser.take(event_about("Created pod: a"), 10.0),
        condenser.take(event_about("Created pod: a"), 11.0),
    )
    assert first is not None
    assert again is not None
    assert (again.id, again.count, again.first, again.last) == (first.id, 2, 10.0, 11.0)


def test_many_similar_events_become_one() -> None:
    condenser = EventCorrelator()
    entries = [condenser.take(event_about(f"Created pod: {i}"), 10.0) for i in range(14)]
    assert [entry.count for entry in entries if entry] == [1] * 10 + [1, 2, 3, 4]
    assert len({entry.id for entry in entries if entry}) == 11
    last = entries[-1]
    assert last is not None
    assert last.event.message == "(combined from similar events): Created pod: 13"
    later = condenser.take(event_about("Created pod: later"), 10.0 + kube_events.ALIKE_WITHIN + 1)
    assert later is not None
    assert later.event.message == "Created pod: later"


def test_a_reason_has_25_events_about_an_object_and_then_one_in_five_minutes() -> None:
    condenser = EventCorrelator()
    taken = [condenser.take(event_about("again"), 0.0) for _ in range(100)]
    assert sum(entry is not None for entry in taken) == kube_events.BURST
    hour = [condenser.take(event_about("again"), 60.0 * minute) for minute in range(1, 61)]
    assert sum(entry is not None for entry in hour) == 12
    # the ones that were not written count too
    counts = {entry.count for entry in hour if entry is not None}
    assert counts <= set(range(101, 161))


@given(st.lists(st.sampled_from(("SuccessfulCreate", "FailedCreate", "Degraded")), max_size=300))
def test_no_number_of_events_suppresses_one_of_another_reason_or_object(before: list[str]) -> None:
    condenser = EventCorrelator()
    for number, reason in enumerate(before):
        condenser.take(event_about(str(number), reason=reason), 0.0)
    assert condenser.take(event_about("halted", reason="RolloutHalted"), 0.0) is not None
    assert condenser.take(event_about("other", about=STATE), 0.0) is not None


@pytest.mark.parametrize("of_pods", [False, True])
def test_a_rollout_of_a_thousand_nodes_drops_none_of_its_stages_and_failures(of_pods: bool) -> None:
    cluster: Any = None
    writer = KubeEventWriter(cluster, of_pods=of_pods)
    key, commit = Key("apps", "DaemonSet", "logging", "agent"), COMMIT
    for node in range(1000):
        action = CreatePod(f"node-{node}", {}, "", "its node is updated")
        writer.handle(Performed(1.0, key, action, key))
        writer.handle(ActionFailed(1.0, key, action, errors.ClusterError("denied")))
    milestones = (
        StageOpened(2.0, key, commit, "canary", 2),
        StagePassed(2.0, key, commit, "canary", 2),
        RolloutHalted(2.0, key, commit, Halt(2.0, "rest", "failed")),
    )
    for event in milestones:
        writer.handle(event)
    written = Counter(writer._queue.get_nowait().event.reason for _ in range(writer._queue.qsize()))
    assert written["StageOpened"] == written["StagePassed"] == written["RolloutHalted"] == 1
    assert written["SuccessfulCreate"] == (kube_events.BURST if of_pods else 0)
    assert written["FailedCreate"] == kube_events.BURST


def test_the_memory_of_events_is_bounded() -> None:
    condenser = EventCorrelator()
    for i in range(3 * kube_events.REMEMBERED):
        condenser.take(
            event_about("x", about=InvolvedObject("apps/v1", "DaemonSet", "logging", str(i))), 0.0
        )
    assert (
        max(len(condenser._alike), len(condenser._counted), len(condenser._full_at))
        == kube_events.REMEMBERED
    )
