"""The status of a commit: it is true at each stage, names the stages of its rollout, is never sent
twice, and never goes back.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitops_ds.core import names
from gitops_ds.core.change import Change, Operation
from gitops_ds.core.daemonset import DaemonSet
from gitops_ds.core.decision import Observation
from gitops_ds.core.deployer_state import DeployerState, Generation
from gitops_ds.core.events.base import Event
from gitops_ds.core.events.commits import CommitRejected, CommitWaits, NewCommit
from gitops_ds.core.events.deployer import Applied, Reconciled, ReconcileFailed
from gitops_ds.core.events.requests import CommitHeld, Suspended
from gitops_ds.core.finding import Place
from gitops_ds.core.health import Health, HealthState, NodeCounts
from gitops_ds.core.objects import CommitId, Key
from gitops_ds.core.rollouts.staged_rollout import StageState
from gitops_ds.core.rollouts.template_cause import TemplateCause
from gitops_ds.core.skip_reasons import Skipped, SkipReason
from gitops_ds.core.values import replace
from gitops_ds.forges.contract import StatusState as Shown
from gitops_ds.service.notifications.commit_progress import CommitStage, CommitTracker, StageKind
from gitops_ds.source import rules
from gitops_ds.status import cluster_reports
from gitops_ds.status.agents import Agent
from tests import profiles
from tests.rollouts.rollout_world import SECOND
from tests.status.staged_world import FAST, Watched, watched

A, B = (Key("apps", "DaemonSet", "ops", name) for name in "ab")
ONE, TWO, THREE = (CommitId(digit * 40) for digit in "123")
ROLLING = Health(
    HealthState.PROGRESSING, "4 of 10 nodes done", node_counts=NodeCounts(updated=4, old=6)
)
WELL = Health(HealthState.HEALTHY, "10 of 10 nodes available", node_counts=NodeCounts(updated=10))
ILL = Health(
    HealthState.DEGRADED,
    "unhealthy on 1 of 10 nodes",
    node_counts=NodeCounts(updated=9, node_fault=1),
)
BROKEN = Health(
    HealthState.FAILED,
    "the template fails on 1 of 10 nodes",
    node_counts=NodeCounts(old=9, template_fault=1),
)
PARKED = Health(
    HealthState.HEALTHY,
    "10 of 10 available; 7 run an earlier revision",
    node_counts=NodeCounts(updated=3, parked=7),
)
TAKEN_UP_LATER = Health(
    HealthState.PROGRESSING,
    "no controller has observed generation 2 yet",
    node_counts=NodeCounts(updated=10),
)


def agent(key: Key, commit: str, health: Health) -> Agent:
    body = DaemonSet(key, "uid", {}, {}, (), annotations={names.COMMIT: commit}, generation=1)
    return Agent(Observation(0.0, body, ()), health, DeployerState())


def new(commit: CommitId) -> NewCommit:
    return NewCommit(0.0, commit, "subject", "Ann")


def wrote(key: Key) -> Applied:
    return Applied(0.0, Change(Operation.UPDATE, key, None))


def ended(commit: CommitId, *refusals: Skipped) -> Reconciled:
    return Reconciled(0.0, commit, 1, refusals)


class Forge:
    """The statuses of each commit on a forge."""

    def __init__(self) -> None:
        self.known: dict[str, CommitStage] = {}
        self.courses = CommitTracker(self.known)
        self.sent: list[tuple[str, CommitStage]] = []

    def restart(self) -> None:
        self.courses = CommitTracker(self.known)

    def handle(self, *events: Event) -> None:
        for record in events:
            self.courses.handle(record)

    def look(self, *agents: Agent, desired: Sequence[Key] = (A,)) -> list[tuple[str, str, str]]:
        """The statuses that are sent now: the commit's first digit, the state, the text."""
        due = self.courses.due(agents, frozenset(desired))
        for course, stage in due:
            self.known[course.commit] = stage
            self.courses.note(course, stage)
            self.sent.append((course.commit, stage))
        return [(course.commit[0], stage.state.value, stage.words) for course, stage in due]


def test_a_commit_waits_for_the_agents_of_an_earlier_commit_of_its_poll() -> None:
    forge = Forge()
    forge.handle(new(TWO), Applied(0.0, Change(Operation.UPDATE, A, None), gave=ONE), ended(TWO))
    assert forge.look(agent(A, "0" * 40, WELL)) == [("2", "running", "rolling out")]
    assert forge.look(agent(A, ONE, ROLLING)) == [("2", "running", "rolling out 4/10 nodes")]
    assert [state for _, state, _ in forge.look(agent(A, ONE, WELL))] == ["success"]


def test_after_a_restart_the_agents_of_an_earlier_commit_of_its_poll_are_those_of_that_commit() -> (
    None
):
    def seen(commit: str, health: Health) -> Agent:
        state = DeployerState(causes={A: TemplateCause("s", ONE, head=TWO)})
        return replace(agent(A, commit, health), state=state)

    forge = Forge()
    forge.handle(new(TWO), Applied(0.0, Change(Operation.UPDATE, A, None), gave=ONE), ended(TWO))
    rolling = ("1", "running", "rolling out 4/10 nodes")
    assert forge.look(seen(ONE, ROLLING)) == [rolling, ("2", "success", "applied")]
    forge.restart()
    forge.handle(ended(TWO))
    assert forge.look(seen(ONE, ROLLING)) == []
    assert forge.look(seen(ONE, WELL)) == [("1", "success", "ops/a healthy on 10 nodes")]


def brought(by: Key, commit: CommitId, health: Health) -> Agent:
    """An agent whose template a commit gave, in a poll of which THREE was the newest commit."""
    causes = {by: TemplateCause("s", commit, head=THREE)}
    return replace(agent(by, commit, health), state=DeployerState(causes=causes))


@pytest.mark.parametrize(
    ("agents", "expected"),
    [
        # docs, a bad agent, another good one
        ([brought(A, TWO, BROKEN), brought(B, THREE, WELL)], {"2": "failure", "3": "success"}),
        # docs, a good agent, another bad one
        ([brought(A, TWO, WELL), brought(B, THREE, BROKEN)], {"2": "success", "3": "failure"}),
        # a bad agent, another good one, docs
        (
            [brought(A, ONE, BROKEN), brought(B, TWO, WELL)],
            {"1": "failure", "2": "success", "3": "success"},
        ),
        # both agents in the first commit
        ([brought(A, ONE, BROKEN), brought(B, ONE, WELL)], {"1": "failure", "3": "success"}),
        # docs, an agent whose rollout lasts, another one
        ([brought(A, TWO, ROLLING), brought(B, THREE, WELL)], {"2": "running", "3": "success"}),
    ],
)
@pytest.mark.parametrize("restarts", [False, True])
def test_each_commit_of_a_poll_has_the_status_of_its_own_agents(
    agents: list[Agent], expected: dict[str, str], restarts: bool
) -> None:
    forge = Forge()
    forge.handle(new(THREE))
    forge.look(agent(A, "0" * 40, WELL), agent(B, "0" * 40, WELL), desired=(A, B))
    for one in agents:
        gave = one.state.causes[one.key].commit
        forge.handle(Applied(0.0, Change(Operation.UPDATE, one.key, None), gave=gave))
    forge.handle(ended(THREE))
    if restarts:
        forge.restart()
        forge.handle(ended(THREE))
    shown = {commit: state for commit, state, _ in forge.look(*agents, desired=(A, B))}
    assert shown == expected
    well = [replace(one, health=WELL) for one in agents]
    later = {commit: state for commit, state, _ in forge.look(*well, desired=(A, B))}
    assert later == {one: "success" for one, state in expected.items() if state != "success"}


def test_a_commit_that_changed_an_agent_but_not_its_template_has_the_agent() -> None:
    forge = Forge()
    causes = {A: TemplateCause("s", ONE, head=ONE)}
    old = replace(agent(A, ONE, ROLLING), state=DeployerState(causes=causes))
    forge.handle(new(THREE), Applied(0.0, Change(Operation.UPDATE, A, None), gave=ONE))
    forge.handle(ended(THREE))
    assert forge.look(old) == [("3", "running", "rolling out 4/10 nodes")]


def test_from_the_push_to_the_last_node() -> None:
    forge = Forge()
    forge.handle(new(ONE))
    assert forge.look(agent(A, "0" * 40, WELL)) == [("1", "pending", "applying")]
    forge.handle(wrote(A), ended(ONE))
    # the watch has not sent it yet
    assert forge.look(agent(A, "0" * 40, WELL)) == [("1", "running", "rolling out")]
    assert forge.look(agent(A, ONE, TAKEN_UP_LATER)) == [
        ("1", "running", "rolling out 10/10 nodes")
    ]
    assert forge.look(agent(A, ONE, WELL)) == [("1", "success", "ops/a healthy on 10 nodes")]
    assert forge.look(agent(A, ONE, BROKEN)) == []  # a later failure is not the commit's


def test_progress_is_reported_by_tenths() -> None:
    forge = Forge()
    forge.handle(new(ONE), wrote(A), ended(ONE))
    for updated in range(201):
        health = Health(
            HealthState.PROGRESSING, "", node_counts=NodeCounts(updated=updated, old=200 - updated)
        )
        forge.look(agent(A, ONE, health))
    assert [stage.words for _, stage in forge.sent] == [
        f"rolling out {n}/200 nodes" for n in range(0, 201, 20)
    ]


@pytest.mark.parametrize(
    ("health", "state", "words"),
    [
        (WELL, "success", "all 2 agents healthy"),
        (ILL, "success", "rolled out on 19 nodes; ops/b: unhealthy on 1 of 10 nodes"),
        (ROLLING, "running", "rolling out 14/20 nodes"),
        (PARKED, "running", "rolling out 13/20 nodes"),
        (BROKEN, "failure", "ops/b: the template fails on 1 of 10 nodes"),
    ],
)
def test_the_slowest_of_several_agents_decides_the_status(
    health: Health, state: str, words: str
) -> None:
    forge = Forge()
    forge.handle(new(ONE), wrote(A), wrote(B), ended(ONE))
    assert forge.look(agent(A, ONE, WELL), agent(B, ONE, health), desired=(A, B)) == [
        ("1", state, words)
    ]


def test_unchanged_agents_do_not_affect_the_status_of_a_commit() -> None:
    forge = Forge()
    forge.handle(new(ONE), wrote(A), ended(ONE))
    forge.look(agent(A, ONE, ROLLING), agent(B, "0" * 40, BROKEN), desired=(A, B))
    forge.handle(new(TWO), ended(TWO))
    assert forge.look(agent(A, ONE, ROLLING), agent(B, "0" * 40, BROKEN), desired=(A, B)) == [
        ("2", "success", "applied")
    ]
    assert forge.look(agent(A, ONE, WELL), agent(B, "0" * 40, BROKEN), desired=(A, B)) == [
        ("1", "success", "ops/a healthy on 10 nodes")
    ]


def test_a_failed_commit_can_recover_and_one_fixed_by_another_stays_failed() -> None:
    forge = Forge()
    forge.handle(new(ONE), wrote(A), ended(ONE))
    forge.look(agent(A, ONE, BROKEN))
    assert forge.look(agent(A, ONE, ROLLING)) == []
    assert forge.look(agent(A, ONE, WELL)) == [("1", "success", "ops/a healthy on 10 nodes")]
    forge.handle(new(TWO), wrote(A), ended(TWO))
    forge.look(agent(A, TWO, BROKEN))
    forge.handle(new(THREE), wrote(A), ended(THREE))
    assert forge.look(agent(A, THREE, WELL)) == [("3", "success", "ops/a healthy on 10 nodes")]
    assert [stage.step for commit, stage in forge.sent if commit == TWO] == [StageKind.FAILED]


def test_a_superseded_commit_is_reported_as_such() -> None:
    forge = Forge()
    forge.handle(new(ONE), wrote(A), ended(ONE))
    forge.look(agent(A, ONE, ROLLING))
    forge.handle(new(TWO), wrote(A), ended(TWO))
    assert forge.look(agent(A, TWO, ROLLING)) == [
        ("1", "canceled", "overtaken by 222222222222"),
        ("2", "running", "rolling out 4/10 nodes"),
    ]
    forge.restart()
    forge.handle(ended(TWO))
    assert forge.look(agent(A, TWO, WELL)) == [("2", "success", "ops/a healthy on 10 nodes")]


def test_a_commit_that_is_not_applied_has_the_reason_without_secrets() -> None:
    forge = Forge()
    token = "ghp_" + "a1B2" * 9
    forge.handle(
        new(ONE),
        CommitRejected(
            0.0,
            ONE,
            (rules.UNKNOWN_FIELD.refusal(f"no such field {token}", Place("a.yaml", 3, 5)),),
        ),
    )
    ((_, state, words),) = forge.look(agent(A, "0" * 40, WELL))
    assert state == "failure"
    assert words.startswith("not applied: a.yaml:3:5: DS003 no such field ")
    assert token not in words
    forge.handle(new(TWO), wrote(A), ended(TWO, Skipped(SkipReason.REFUSED, "quota", A)))
    assert ("2", "failure", "not applied: quota") in forge.look(agent(A, TWO, WELL))
    forge.handle(ended(TWO))
    assert forge.look(agent(A, TWO, WELL)) == [("2", "success", "ops/a healthy on 10 nodes")]
    forge.handle(new(THREE), Suspended(0.0, THREE, 2))
    assert forge.look(agent(A, TWO, WELL)) == [("3", "pending", "suspended: 2 changes not applied")]


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (Suspended(0.0, ONE, 2, "incident 42"), "suspended: 2 changes not applied: incident 42"),
        (CommitHeld(0.0, ONE, "requested: too early"), "held: requested: too early"),
    ],
)
def test_a_commit_waits_for_the_reason_that_a_person_stated(event: Event, words: str) -> None:
    forge = Forge()
    forge.handle(new(ONE), event)
    assert forge.look(agent(A, "0" * 40, WELL)) == [("1", "pending", words)]


def test_a_commit_whose_deletions_are_held_is_pending_until_they_are_approved() -> None:
    forge = Forge()
    held = Skipped(SkipReason.TOO_MANY_DELETES, "8 of 10 objects would be deleted", held=(A,))
    forge.handle(new(ONE), ended(ONE, held))
    assert forge.look(agent(A, "0" * 40, WELL)) == [
        ("1", "pending", "held: 8 of 10 objects would be deleted")
    ]
    forge.handle(ended(ONE))
    assert [state for _, state, _ in forge.look(desired=())] == ["success"]


def test_a_commit_that_waits_for_other_clusters_is_not_overtaken_by_those_before() -> None:
    forge = Forge()
    forge.handle(new(TWO), CommitWaits(0.0, TWO, "waits for cluster staging: soak of 1h"))
    assert forge.look() == [("2", "pending", "waits for cluster staging: soak of 1h")]
    # An earlier commit went through the clusters before, which this service never saw as the tip.
    forge.handle(wrote(A), ended(ONE))
    healthy = "ops/a healthy on 10 nodes"
    assert forge.look(agent(A, ONE, WELL)) == [("1", "success", healthy)]
    assert forge.look(agent(A, ONE, WELL)) == []
    forge.handle(ended(TWO))
    assert forge.look(agent(A, ONE, WELL)) == [("2", "success", "applied")]


def test_a_commit_that_is_rolled_out_is_overtaken_by_the_one_that_waited() -> None:
    forge = Forge()
    forge.handle(new(TWO), CommitWaits(0.0, TWO, "waits"), wrote(A), ended(ONE))
    assert forge.look(agent(A, ONE, ROLLING))[-1][:2] == ("2", "pending")
    forge.handle(wrote(A), ended(TWO))
    states = [(name, state) for name, state, _ in forge.look(agent(A, TWO, WELL))]
    assert ("1", "canceled") in states
    assert ("2", "success") in states


def test_the_failure_of_an_edit_in_the_cluster_is_not_that_of_the_commit() -> None:
    forge = Forge()
    forge.handle(new(ONE), wrote(A), ended(ONE))
    state = DeployerState(generations={A: Generation(1, ONE)})
    applied = replace(agent(A, ONE, BROKEN), state=state)
    edit = replace(applied.seen.daemonset, generation=2)
    edited = replace(applied, seen=replace(applied.seen, daemonset=edit))
    forge.look(edited)
    assert forge.known[ONE].step is StageKind.ROLLING
    forge.look(applied)
    assert forge.known[ONE].step is StageKind.FAILED


def test_a_pass_that_only_a_person_can_help_has_failed() -> None:
    forge = Forge()
    forge.handle(new(ONE), ReconcileFailed(0.0, "the server gave no answer", 5.0))
    assert forge.look() == [("1", "pending", "applying")]
    forge.handle(ReconcileFailed(0.0, "namespaces is forbidden"))
    assert forge.look() == [("1", "failure", "not applied: namespaces is forbidden")]
    forge.handle(wrote(A), ended(ONE))
    assert forge.look(agent(A, ONE, WELL)) == [("1", "success", "ops/a healthy on 10 nodes")]


def test_after_a_restart_it_continues_and_waits_until_it_sees_the_agents() -> None:
    forge = Forge()
    forge.handle(new(ONE), wrote(A), ended(ONE))
    forge.look(agent(A, ONE, ROLLING))
    forge.restart()
    assert forge.look() == []
    forge.handle(ended(ONE))
    assert forge.look() == []  # the agents have not been read yet
    assert forge.look(agent(A, ONE, ROLLING)) == []
    assert forge.look(agent(A, ONE, WELL)) == [("1", "success", "ops/a healthy on 10 nodes")]
    forge.restart()
    forge.handle(new(ONE), ended(ONE))
    assert forge.look(agent(A, ONE, WELL)) == []


def test_templates_in_the_cluster_are_not_commits() -> None:
    forge = Forge()
    forge.handle(new(CommitId("configmap/ops/a@7")), ended(CommitId("configmap/ops/a@7")))
    assert forge.look() == []


HEALTHS = st.sampled_from([ROLLING, WELL, ILL, BROKEN, PARKED, TAKEN_UP_LATER])
COMMITS = st.sampled_from([ONE, TWO, THREE])
RECORDS = st.one_of(
    st.builds(new, COMMITS),
    st.builds(wrote, st.sampled_from([A, B])),
    st.builds(ended, COMMITS),
    st.builds(lambda commit: ended(commit, Skipped(SkipReason.REFUSED, "no", A)), COMMITS),
    st.just(ReconcileFailed(0.0, "no")),
    st.builds(lambda commit: Suspended(0.0, commit, 1), COMMITS),
    st.builds(lambda commit: CommitWaits(0.0, commit, "waits"), COMMITS),
    st.builds(
        lambda commit: CommitRejected(0.0, commit, (rules.UNKNOWN_FIELD.refusal("no"),)), COMMITS
    ),
)
LOOKS = st.lists(
    st.builds(agent, st.sampled_from([A, B]), COMMITS, HEALTHS),
    max_size=2,
    unique_by=lambda one: one.key,
)


@settings(max_examples=profiles.examples(300), deadline=None)
@given(st.lists(st.one_of(RECORDS, LOOKS, st.just(None)), max_size=30))
def test_a_stage_never_goes_back_and_success_is_never_false(
    happening: list[Event | list[Agent] | None],
) -> None:
    forge = Forge()
    for one in happening:
        if one is None:
            forge.restart()
        elif isinstance(one, Event):
            forge.handle(one)
        else:
            before = len(forge.sent)
            forge.look(*one, desired=(A, B))
            for commit, stage in forge.sent[before:]:
                own = [
                    agent
                    for agent in one
                    if agent.seen.daemonset.annotations[names.COMMIT] == commit
                ]
                assert stage.step is not StageKind.DONE or cluster_reports.all_well(own)
    for commit in (ONE, TWO, THREE):
        stages = [stage for one, stage in forge.sent if one == commit]
        assert all(before < after for before, after in itertools.pairwise(stages))
        assert all(stage.state is not Shown.SUCCESS for stage in stages[:-1])


COMMIT = CommitId("2" * 40)
KEY = Key("apps", "DaemonSet", "logging", "agent")


def pushed(there: Watched) -> Forge:
    """A forge that follows a commit with the second image, which the deployer has written."""
    forge = Forge()
    forge.handle(new(COMMIT), wrote(KEY), ended(COMMIT))
    there.commit(SECOND)
    there.world.body["metadata"]["annotations"][names.COMMIT] = COMMIT
    return forge


def test_each_passed_stage_is_published_and_success_follows_the_last_one() -> None:
    there = watched({**FAST, "limits": {"atRisk": {"cluster": "100%"}}})
    forge = pushed(there)
    for _ in range(150):
        agent = there.agent()
        stages = agent.rollout.stages.stages if agent.rollout else ()
        published = forge.look(agent, desired=(KEY,))
        if any(state == "success" for _, state, _ in published):
            assert all(stage.state is StageState.PASSED for stage in stages)
        there.world.pass_time()
    words = [stage.words for _, stage in forge.sent]
    assert words[0] == "rolling out canary 0/2, rest 0/8"
    assert "rolling out canary 2/2, rest 0/8" in words
    assert words[-1] == "logging/agent healthy on 10 nodes"
    assert [stage.state.value for _, stage in forge.sent].count("success") == 1


def test_the_approval_of_the_current_stage_is_published() -> None:
    there = watched()
    forge = pushed(there)
    there.rounds(6)
    there.approve("canary")
    forge.look(there.agent(), desired=(KEY,))
    assert forge.sent[-1][1].words == (
        "rolling out canary 0/2, rest 0/8; canary approved by ada@example.com"
    )


def test_a_canary_of_a_large_fleet_is_published() -> None:
    there = watched(nodes=60)
    forge = pushed(there)
    while forge.sent[-1:] == [] or "canary 2/2" not in forge.sent[-1][1].words:
        forge.look(there.agent(), desired=(KEY,))
        there.world.pass_time()
        assert there.world.now < 1_900_000_000.0
    assert forge.sent[-1][1].state.value == "running"


def test_a_halt_is_a_failure_with_its_reason_and_a_hold_is_not_a_failure() -> None:
    policy: dict[str, Any] = {**FAST, "freeze": [{"from": "2027-01-01", "to": "2027-01-15"}]}
    there = watched(policy)
    there.world.bad_images.add(SECOND)
    forge = pushed(there)
    there.rounds(5)
    forge.look(there.agent(), desired=(KEY,))
    assert [stage.state.value for _, stage in forge.sent] == ["running"]
    there.world.now += 86400.0
    there.rounds(20)
    ((_, state, words),) = forge.look(there.agent(), desired=(KEY,))
    assert state == "failure"
    assert words.startswith("logging/agent: halted in stage canary: ImagePullBackOff on node-")
