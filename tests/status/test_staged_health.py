"""The health and the events of an agent in a staged rollout are those of the target."""

from __future__ import annotations

from typing import Any

import pytest

from gitops_ds.core.events.agents import RolloutCompleted, RolloutFailed, RolloutStarted
from gitops_ds.core.health import Blame, HealthState
from gitops_ds.core.objects import CommitId
from gitops_ds.core.values import replace
from gitops_ds.rollouts.state import keys
from gitops_ds.rollouts.views import rollout_tracker
from gitops_ds.rollouts.views.rollout_tracker import RolloutView, TrackedRollout
from tests.rollouts.rollout_world import SECOND, both
from tests.status.staged_world import FAST, watched


@pytest.mark.sampled
@both
def test_a_rollout_is_progressing_until_its_last_stage_is_passed(owned: bool) -> None:
    there = watched(owned=owned)
    assert there.look().state is HealthState.HEALTHY
    there.states.clear()
    there.commit(SECOND)
    health = there.rounds(6)
    assert health.state is HealthState.PROGRESSING
    assert health.message == "canary 0/2, rest 0/8"
    assert (health.node_counts.updated, health.node_counts.old) == (2, 8)
    assert {node.blame for node in health.nodes} == {Blame.UNKNOWN}
    health = there.rounds(200)
    assert health.state is HealthState.HEALTHY
    assert health.node_counts.updated == 10
    assert set(there.states) == {HealthState.PROGRESSING, HealthState.HEALTHY}
    before = there.states[: there.states.index(HealthState.HEALTHY)]
    assert len(before) * 5 > 60 + 10  # the soaks


@pytest.mark.sampled
@both
def test_the_events_of_a_rollout_are_those_of_the_target_and_none_at_the_promotion(
    owned: bool,
) -> None:
    there = watched(owned=owned)
    there.commit(SECOND)
    there.look()
    assert there.event_names() == ["CommitArrived", "RolloutStarted"]
    for _ in range(100):
        there.rounds(1)
        rollout = there.agent().rollout
        if rollout is not None and "RolloutCompleted" in there.event_names():
            assert rollout.complete
    assert there.world.body["spec"]["template"]["spec"]["containers"][0]["image"] == SECOND
    assert there.event_names() == ["CommitArrived", "RolloutStarted", "RolloutCompleted"]
    started, completed = there.events[1:]
    assert isinstance(started, RolloutStarted)
    assert isinstance(completed, RolloutCompleted)
    assert (started.commit, started.revision, started.nodes) == (SECOND, 2, 10)
    assert (completed.commit, completed.revision, completed.nodes) == (SECOND, 2, 10)


@pytest.mark.sampled
@both
def test_a_halted_rollout_is_failed_with_the_message_of_the_halt(owned: bool) -> None:
    there = watched(owned=owned)
    there.world.bad_images.add(SECOND)
    there.commit(SECOND)
    there.states.clear()
    health = there.rounds(20)
    assert set(there.states) == {HealthState.PROGRESSING, HealthState.FAILED}
    assert health.state is HealthState.FAILED
    assert health.message.startswith("halted in stage canary: ImagePullBackOff on node-00")
    assert {node.reason for node in health.nodes if node.blame is Blame.TEMPLATE} == {
        "ImagePullBackOff"
    }
    (failed,) = (event for event in there.events if isinstance(event, RolloutFailed))
    assert (failed.commit, failed.revision, failed.halted) == (SECOND, 2, True)
    assert failed.message == health.message
    there.rounds(50)
    assert there.event_names().count("RolloutFailed") == 1


@pytest.mark.sampled
@both
def test_a_revert_is_progressing_until_the_pinned_pods_are_gone(owned: bool) -> None:
    there = watched(owned=owned)
    there.world.bad_images.add(SECOND)
    there.commit(SECOND)
    there.rounds(20)
    there.events.clear()
    there.commit("agent:1")
    assert there.look().state is not HealthState.HEALTHY
    assert there.rounds(60).state is HealthState.HEALTHY
    assert there.event_names() == ["CommitArrived", "RolloutStarted", "RolloutCompleted"]


@both
def test_a_template_that_is_edited_in_the_cluster_starts_no_rollout_of_nodes_that_keep_theirs(
    owned: bool,
) -> None:
    there = watched(owned=owned)
    body = there.world.body
    (container,) = body["spec"]["template"]["spec"]["containers"]
    for image in ("agent:edited", "agent:1"):
        container["image"] = image
        body["metadata"]["generation"] += 1
        there.rounds(20)
    assert there.event_names() == []
    assert len(there.world.revisions) == 2  # of the edit, too


def test_a_hold_is_in_the_message_and_never_a_failure() -> None:
    policy: dict[str, Any] = {
        **FAST,
        "freeze": [{"from": "2027-01-01", "to": "2027-02-01"}],
    }
    there = watched(policy)
    there.commit(SECOND)
    health = there.rounds(300)
    assert health.message == ("canary 0/2, rest 0/8; on hold: freeze, until 2027-02-02T00:00:00Z")
    there.world.now += 10 * 86400.0 - 10
    health = there.look()
    assert health.state is HealthState.PROGRESSING
    assert health.node_counts.old == 10


def test_a_soak_longer_than_the_deadline_is_not_a_failure() -> None:
    policy: dict[str, Any] = {
        **FAST,
        "stages": [{"name": "canary", "nodes": {"count": 2}, "soak": "10h"}, "rest"],
        "progress": {"deadline": "1h"},
    }
    there = watched(policy)
    there.commit(SECOND)
    there.rounds(10)
    for _ in range(9):
        there.world.now += 3600.0
        assert there.rounds(1).state is HealthState.PROGRESSING
    assert there.event_names() == ["CommitArrived", "RolloutStarted"]


def test_a_stuck_rollout_fails_after_the_deadline_of_its_policy() -> None:
    policy: dict[str, Any] = {**FAST, "progress": {"deadline": "1h"}}
    there = watched(policy)
    there.commit(SECOND)
    there.world.staged_turn()  # the pods of the canary end, and never vanish
    assert there.look().state is HealthState.PROGRESSING
    there.world.now += 3000.0
    assert there.look().state is HealthState.PROGRESSING
    there.world.now += 700.0
    health = there.look()
    assert health.state in (HealthState.FAILED, HealthState.DEGRADED)
    assert "3600 s" in health.message or "do not terminate" in health.message


def test_a_parked_node_is_a_fault_of_the_node_and_the_rollout_continues_without_it() -> None:
    there = watched()
    there.world.nodes[5]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    there.commit(SECOND)
    health = there.rounds(300)
    assert health.state is HealthState.DEGRADED
    assert [(node.node, node.blame) for node in health.nodes] == [("node-005", Blame.NODE)]
    assert health.node_counts.node_fault == 1


def test_a_command_without_memory_sees_the_same() -> None:
    there = watched()
    there.commit(SECOND)
    for _ in range(120):
        there.world.pass_time()
        followed, read = there.look(), there.agent()
        assert (followed.state, followed.message) == (read.health.state, read.health.message)
        if read.rollout is None:
            break
        assert read.rollout.complete or read.health.state is not HealthState.HEALTHY
    assert keys.TARGET not in there.world.body["metadata"]["annotations"]


def test_the_start_counts_the_nodes_whose_earlier_pod_is_ending_already() -> None:
    agent = watched().agent()
    seen = agent.seen
    ending, *old = (replace(pod, hash="old") for pod in seen.pods[:4])
    seen = replace(seen, pods=(replace(ending, terminating=True), *old, *seen.pods[4:]))
    before = TrackedRollout(seen.daemonset.uid, CommitId(""), "old", 0.0, open=False)
    _, events = rollout_tracker.follow(before, RolloutView(seen, agent.health, CommitId("")), 0.0)
    assert [event.nodes for event in events if isinstance(event, RolloutStarted)] == [4]


def test_the_completion_is_reported_with_the_number_of_the_revision() -> None:
    agent = watched().agent()
    uid = agent.seen.daemonset.uid
    before: TrackedRollout | None = TrackedRollout(uid, CommitId(""), "old", 0.0, open=False)
    found = list[tuple[str, int]]()
    for number in (0, 0, 2):  # the DaemonSet controller numbers it after the promotion
        revisions = tuple(replace(revision, number=number) for revision in agent.seen.revisions)
        view = RolloutView(replace(agent.seen, revisions=revisions), agent.health, CommitId(""))
        before, events = rollout_tracker.follow(before, view, 0.0)
        found += [
            (event.definition.kind, event.revision)
            for event in events
            if isinstance(event, RolloutStarted | RolloutCompleted)
        ]
    assert found == [("RolloutStarted", 2), ("RolloutCompleted", 2)]


def test_the_number_of_a_target_is_its_own_once_it_has_one() -> None:
    there = watched()
    there.commit(SECOND)
    there.rounds(6)
    agent = there.agent()
    assert agent.rollout is not None
    assert agent.target is not None
    assert agent.rollout.number(agent.seen) == 2
    uid, name = agent.seen.daemonset.uid, agent.target.name
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "uid": uid, "controller": True}
    for number in (0, 2):
        promoted = tuple(
            replace(
                revision,
                number=number,
                raw={
                    **revision.raw,
                    "metadata": {**revision.raw["metadata"], "ownerReferences": [owner]},
                },
            )
            if revision.name == name
            else revision
            for revision in agent.seen.revisions
        )
        assert agent.rollout.number(replace(agent.seen, revisions=promoted)) == 2
