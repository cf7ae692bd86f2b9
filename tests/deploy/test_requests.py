"""Requests to the service by annotations: a reconciliation, a suspension, an approval, a commit on
hold. Virtual time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

import pytest

from gitops_ds.cli import sources
from gitops_ds.cli.requests import service_requests
from gitops_ds.core import errors, names, stated_reasons
from gitops_ds.core.deployer_state import DeployerState, Steering
from gitops_ds.core.events import deployer
from gitops_ds.core.events.requests import CommitHeld, RequestHandled, Resumed, Suspended
from gitops_ds.core.objects import CONFIG_MAP, DAEMONSET, CommitId, Key
from gitops_ds.core.rollouts.cluster_report import ClusterOrder
from gitops_ds.core.skip_reasons import Skipped, SkipReason
from gitops_ds.core.sources.source_status import Condition
from gitops_ds.deploy import reports, requests, source_status_store, state_store
from gitops_ds.deploy.revision_selector import SelectedRevision
from gitops_ds.deploy.wave_gate import WaitingCommit
from gitops_ds.notify import kube_events, notifications
from gitops_ds.notify.kube_events import InvolvedObject
from gitops_ds.notify.notifications import MessageFormat, NotificationBatch, NotificationBuilder
from gitops_ds.ownership.options import ApplyOptions, Guards
from gitops_ds.rollouts.waves.cluster_waves import WaveHold
from gitops_ds.service.notifications import commit_progress
from gitops_ds.status import agent_lists, agents
from gitops_ds.testing.simulator import virtual_time
from tests.deploy import test_loop
from tests.deploy.test_loop import AGENT, Scene, config_maps, edit

play = test_loop.play

NAME = "gitops-ds-test"
TARGET = service_requests.StateObject("gitops-ds", "test", DeployerState())
WHY = "incident 42: the network is slow"
STATE = InvolvedObject("v1", "ConfigMap", "gitops-ds", NAME)
MORE = AGENT.replace("name: agent", "name: more").replace("app: agent", "app: more")


async def annotate(scene: Scene, **values: str | None) -> None:
    """What `kubectl annotate` does on the state's ConfigMap."""
    added = {f"{names.DOMAIN}/{name.replace('_', '-')}": value for name, value in values.items()}
    person = scene.cluster.client("kubectl-annotate")
    await person.patch(CONFIG_MAP, "gitops-ds", NAME, {"metadata": {"annotations": added}})


async def annotations_of(scene: Scene) -> Mapping[str, str]:
    body = await scene.cluster.get(CONFIG_MAP, "gitops-ds", NAME)
    current: Mapping[str, str] = body["metadata"]["annotations"]
    return current


async def answered(scene: Scene, value: str) -> str:
    """The outcome of a request; only the watch causes a reconciliation."""
    await annotate(scene, requested_at=value)
    async with asyncio.timeout(60):
        while (annotations := await annotations_of(scene)).get(names.HANDLED_AT) != value:
            await asyncio.sleep(0.1)
    return annotations[names.OUTCOME]


def test_an_abbreviated_commit_approves_no_plan() -> None:
    state = DeployerState(last_good=CommitId("a" * 40), last_attempted=CommitId("b" * 40))
    service_requests.refuse_commit(state, "c" * 16)
    service_requests.refuse_commit(state, "a" * 16 + "-3")
    for digit in "ab":
        with pytest.raises(errors.UsageError, match=f"is commit {digit * 12}: a plan is approved"):
            service_requests.refuse_commit(state, digit * 16)


TIP, OLDER = CommitId("a" * 40), CommitId("b" * 40)
WAITS = WaitingCommit(ClusterOrder(), WaveHold("canary", "canary is unhealthy"))
REFUSAL = Skipped(SkipReason.REFUSED, "ConfigMap apps/a: denied", Key("", "ConfigMap", "apps", "a"))
HELD = Skipped(SkipReason.HELD, "it is held")


def ended(commit: CommitId, *refusals: Skipped) -> deployer.Reconciled:
    return deployer.Reconciled(0.0, commit, 2, refusals)


@pytest.mark.parametrize(
    ("selected", "text"),
    [
        (SelectedRevision(TIP), "not applied, and there is no earlier good one"),
        (
            SelectedRevision(TIP, lost=True),
            "not applied, and the Git server no longer has the last good one",
        ),
        (SelectedRevision(TIP, lost=True, waiting=WAITS), "waiting"),
        (SelectedRevision(TIP, waiting=WAITS, held="requested"), "held"),
    ],
)
def test_the_answer_of_a_reconciliation_that_has_no_commit(
    selected: SelectedRevision, text: str
) -> None:
    assert reports.without_plan(selected) == f"failure: commit aaaaaaaaaaaa is {text}"


@pytest.mark.parametrize(
    ("done", "begins", "ends"),
    [
        (ended(TIP), "success: commit aaaaaaaaaaaa is applied: 2 written", ""),
        (ended(TIP, HELD), "success: commit aaaaaaaaaaaa is applied: 2 written", "; it is held"),
        (
            ended(TIP, REFUSAL, REFUSAL),
            "failure: commit aaaaaaaaaaaa is not applied as a whole: 2 written, 2 refused: ",
            "ConfigMap apps/a: denied",
        ),
        (
            ended(OLDER, REFUSAL),
            "failure: commit aaaaaaaaaaaa is not applied; the last good one stays: ",
            "commit bbbbbbbbbbbb is applied: 2 written",
        ),
    ],
)
def test_the_answer_of_an_applied_plan(done: deployer.Reconciled, begins: str, ends: str) -> None:
    assert reports.outcome(TIP, done) == begins + ends


async def test_a_request_is_answered_with_its_value_and_how_the_pass_ended(scene: Scene, /) -> None:
    await scene.settle()
    assert (
        await answered(scene, "1")
    ) == f"success: commit {scene.history.id(0)[:12]} is applied: 0 written"
    commit = scene.history.push(AGENT.format(tag="2"))
    assert (await answered(scene, "2")).startswith(f"success: commit {commit[:12]} is applied: ")
    assert await scene.image() == "2"
    bad = scene.history.push(AGENT.format(tag="3").replace("containers:", "containerz:"))
    assert (await answered(scene, "3")).startswith(
        f"failure: commit {bad[:12]} is not applied; the last good one stays"
    )
    scene.history.unreachable = True
    assert (await answered(scene, "4")) == "failure: the server gave no answer"
    assert [record.request for record in scene.events if isinstance(record, RequestHandled)] == [
        "1",
        "2",
        "3",
        "4",
    ]


async def test_a_request_is_taken_within_a_second_and_costs_nothing_afterwards(
    scene: Scene, /
) -> None:
    await scene.settle()
    scene.history.push(AGENT.format(tag="2"))
    await annotate(scene, requested_at="x")
    await asyncio.sleep(1)
    assert await scene.image() == "2"
    await asyncio.sleep(30)
    before, looks = scene.client.count.total, scene.history.looks
    await asyncio.sleep(3000)
    assert scene.history.looks == looks
    heartbeats = scene.client.count.by["apply", "configmaps"]
    assert heartbeats <= 3000 / source_status_store.HEARTBEAT + 3
    # each heartbeat reads the status and those of other namespaces before it is written
    assert scene.client.count.total - scene.client.count.of("watch") - 3 * heartbeats <= before


async def test_annotations_of_others_stay_when_the_state_is_saved(scene: Scene, /) -> None:
    await scene.settle()
    person = scene.cluster.client("kubectl-annotate")
    await person.patch(
        CONFIG_MAP,
        "gitops-ds",
        NAME,
        {"metadata": {"annotations": {"example.com/note": "ours"}}},
    )
    commit = scene.history.push(AGENT.format(tag="2"))
    await scene.settle()
    assert (await annotations_of(scene))["example.com/note"] == "ours"
    assert (await state_store.load(scene.cluster, "gitops-ds", "test")).last_good == commit


def notified(scene: Scene) -> list[str]:
    """The messages that a receiver of notifications gets."""
    builder = NotificationBuilder()
    items = [one for event in scene.events if (one := builder.handle(event, "repository"))]
    document = json.loads(notifications.body(MessageFormat.JSON, NotificationBatch(items)))
    return [item["message"] for item in document["items"]]


async def test_while_suspended_nothing_is_written_and_pending_changes_are_reported(
    scene: Scene, /
) -> None:
    await scene.settle()
    await service_requests.suspend(scene.cluster, TARGET, suspended=True, reason=WHY)
    commit = scene.history.push(AGENT.format(tag="2"))
    await edit(scene.cluster)
    await scene.settle()
    assert await scene.image() == "9"
    assert scene.loop.status is not None
    assert scene.loop.status.message.endswith(f"not applied: {WHY}")
    suspensions = [record for record in scene.events if isinstance(record, Suspended)]
    assert (suspensions[-1].commit, suspensions[-1].changes) == (commit, 1)
    assert suspensions[-1].kube_text().endswith(f": {WHY}")
    assert f"suspended: 1 change of commit {commit[:12]} not applied: {WHY}" in notified(scene)
    state = await state_store.load(scene.cluster, "gitops-ds", "test")
    assert [key.kind for key in state.waiting] == ["DaemonSet"]
    assert state.last_attempted != commit
    assert (
        await answered(scene, "x")
    ) == f"suspended: 1 change of commit {commit[:12]} not applied: {WHY}"

    await service_requests.suspend(scene.cluster, TARGET, suspended=False)
    assert names.SUSPEND_REASON not in await annotations_of(scene)
    await asyncio.sleep(10)
    assert await scene.image() == "2"
    assert len(scene.events_of(Resumed)) == 1
    assert not (await state_store.load(scene.cluster, "gitops-ds", "test")).waiting


async def test_a_request_that_arrives_while_git_is_read_is_handled_by_the_next_reconciliation(
    scene: Scene, /
) -> None:
    await scene.settle()
    await annotate(scene, suspend="true")
    scene.history.push(AGENT.format(tag="2"))
    await scene.settle()
    await edit(scene.cluster)
    await asyncio.sleep(10)
    scene.history.answers = asyncio.Event()
    scene.loop.request()
    await edit(scene.cluster, "8")
    await asyncio.sleep(1)  # the requests are read, Git has not answered yet
    await annotate(scene, suspend=None)
    await asyncio.sleep(1)
    scene.history.answers.set()
    await asyncio.sleep(30)
    assert await scene.image() == "2"


async def mark(scene: Scene, value: str | None) -> None:
    person = scene.cluster.client("kubectl-annotate")
    await person.patch(
        DAEMONSET, "default", "agent", {"metadata": {"annotations": {names.SUSPEND: value}}}
    )


async def test_one_agent_is_suspended_and_the_others_go_on(scene: Scene, /) -> None:
    scene.history.push(AGENT.format(tag="1") + "---\n" + MORE.format(tag="1"))
    await scene.settle()
    person = scene.cluster.client("kubectl-annotate")
    await service_requests.suspend_agent(person, "agent", "", suspended=True, reason=WHY)
    await asyncio.sleep(1)
    commit = scene.history.push(AGENT.format(tag="2") + "---\n" + MORE.format(tag="2"))
    await scene.settle()
    assert await scene.image() == "1"
    more = await scene.cluster.get(DAEMONSET, "default", "more")
    assert more["spec"]["template"]["spec"]["containers"][0]["image"].endswith(":2")
    state = await state_store.load(scene.cluster, "gitops-ds", "test")
    assert state.last_good == commit  # the others are as in the commit
    assert "agent" in {key.name for key in state.waiting}
    assert "more" not in {key.name for key in state.waiting}
    await asyncio.sleep(10)
    [shown] = await sources.read(scene.cluster, "gitops-ds", virtual_time.clock()())
    assert (shown.condition, shown.newest) == (Condition.SUSPENDED, commit)
    assert shown.applied != commit
    assert "DaemonSet default/agent" in shown.message
    syncs = {
        agent.key.name: agents.sync_of(agent)[0]
        for agent in await agent_lists.list_agents(scene.cluster, "gitops-ds", shown.written)
    }
    assert syncs == {"agent": "OutOfSync", "more": "Synced"}
    messages = {
        event.reason: event.message
        for record in scene.events
        if (event := kube_events.kube_event(record, STATE)) is not None
    }
    assert shown.message in messages["Suspended"]
    assert shown.message.endswith(f": {WHY}")
    assert shown.message in notified(scene)
    courses = commit_progress.CommitTracker({})
    for record in scene.events:
        courses.handle(record)
    [(_, stage)] = [entry for entry in courses.due((), frozenset()) if entry[0].commit == commit]
    assert stage.step is commit_progress.StageKind.APPLYING
    assert stage.words.startswith("suspended: DaemonSet default/agent")
    assert stage.words.endswith(f": {WHY}")
    await mark(scene, None)
    await asyncio.sleep(10)
    assert await scene.image() == "2"
    assert not (await state_store.load(scene.cluster, "gitops-ds", "test")).waiting
    [shown] = await sources.read(scene.cluster, "gitops-ds", virtual_time.clock()())
    assert (shown.condition, shown.applied) == (Condition.SYNCED, commit)


async def test_a_held_commit_is_not_applied_and_the_last_good_one_is_kept_up_until_it_is_released(
    scene: Scene, /
) -> None:
    await scene.settle()
    held = scene.history.id(1)
    await annotate(scene, hold=f"{'f' * 40}, {held}")
    scene.history.push(AGENT.format(tag="2"))
    await scene.settle()
    assert await scene.image() == "1"
    await edit(scene.cluster)
    await asyncio.sleep(10)
    assert await scene.image() == "1"
    assert [record.commit for record in scene.events if isinstance(record, CommitHeld)] == [held]
    assert (await answered(scene, "x")).startswith(f"failure: commit {held[:12]} is not applied")
    await annotate(scene, hold=None)
    await asyncio.sleep(10)
    assert await scene.image() == "2"


async def test_a_commit_is_on_hold_for_the_reason_that_a_person_stated(scene: Scene, /) -> None:
    await scene.settle()
    held = scene.history.id(1)
    await service_requests.hold(scene.cluster, TARGET, held, WHY)
    await service_requests.hold(scene.cluster, TARGET, "f" * 40, "another one")
    scene.history.push(AGENT.format(tag="2"))
    await scene.settle()
    assert scene.loop.status is not None
    assert f"is on hold (requested with `gitops-ds hold`: {WHY})" in scene.loop.status.message
    (event,) = scene.events_of(CommitHeld)
    assert WHY in event.text()
    assert WHY in event.kube_text()
    assert any(f"`gitops-ds hold`: {WHY})" in message for message in notified(scene))
    body = await service_requests.release(scene.cluster, TARGET, held)
    reasons = service_requests.as_json(TARGET, body)["holdReasons"]
    assert reasons == {"f" * 40: "another one"}
    body = await service_requests.release(scene.cluster, TARGET, "f" * 40)
    assert names.HOLD_REASONS not in body["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("two\nlines", "two\\x0alines"),
        ("x" * 1000, "x" * 199 + "…"),
        ("token=ghp_0123456789abcdefghijABCDEFGHIJ012345", "token=<redacted>"),
        ("  ", ""),
    ],
)
def test_a_reason_of_any_writer_is_shown_as_one_line_without_secrets(
    written: str, shown: str
) -> None:
    text = json.dumps({"a" * 40: written})
    body = {"metadata": {"annotations": {names.SUSPEND_REASON: written, names.HOLD_REASONS: text}}}
    steering = requests.parse(body)
    assert steering.suspend_reason == shown
    assert steering.hold_reason(CommitId("a" * 40)) == shown


@pytest.mark.parametrize("text", ["[", "[]", '{"a": 1}'])
def test_unreadable_reasons_are_none(text: str) -> None:
    assert stated_reasons.by_commit(text) == {}


@pytest.mark.play(ApplyOptions(Guards(prune=True), patience=0.0))
async def test_an_approval_is_for_one_plan_and_is_taken_away_when_it_was_used(
    scene: Scene, /
) -> None:
    without = AGENT.format(tag="1").partition("---\n")[2]
    await scene.settle()
    scene.history.push(without)
    await scene.settle()
    assert await scene.image() == "1"  # all nodes would lose it
    (plan, *_) = [
        record.plan for record in reversed(scene.events) if isinstance(record, deployer.Planned)
    ]
    await annotate(scene, approve="0" * len(plan.hash))
    await asyncio.sleep(10)
    assert await scene.image() == "1"
    await annotate(scene, approve=plan.hash)
    await asyncio.sleep(30)
    assert not (await scene.cluster.list(DAEMONSET)).items
    assert names.APPROVE not in await annotations_of(scene)
    assert await config_maps(scene) == ["agent"]


@pytest.mark.parametrize("word", ["true", "True", "TRUE"])
def test_the_values_of_annotations_are_parsed(word: str) -> None:
    requested = {
        names.SUSPEND: word,
        names.REQUESTED_AT: "now",
        names.HOLD: "ABCDEF0, nope, 12, abcdef0",
        names.APPROVE: " h ",
    }
    assert requests.parse({"metadata": {"annotations": requested}}) == Steering(
        "now", True, "h", ("abcdef0",)
    )
    assert (
        requests.parse(
            {"metadata": {"annotations": {**requested, names.HANDLED_AT: "now"}}}
        ).requested
        == ""
    )


@pytest.mark.parametrize("body", [{}, {"metadata": None}, {"metadata": {"annotations": None}}])
def test_an_object_without_annotations_requests_nothing(body: Mapping[str, object]) -> None:
    assert requests.parse(body) == Steering()


async def test_a_pushed_commit_is_fetched_until_the_server_shows_it_and_not_indefinitely(
    scene: Scene, /
) -> None:
    await scene.settle()
    looks, shown = scene.history.looks, scene.history.at
    commit = scene.history.push(AGENT.format(tag="2"))
    scene.history.at = shown  # the server announces a push before it shows it
    scene.loop.request(commit)
    await asyncio.sleep(12)
    scene.history.at = shown + 1
    await asyncio.sleep(14)
    assert await scene.image() == "2"
    await asyncio.sleep(60)
    looks = scene.history.looks
    scene.loop.request(scene.history.id(77))
    await asyncio.sleep(600)
    assert 4 <= scene.history.looks - looks <= 10
    later = scene.history.looks
    await asyncio.sleep(600)
    assert scene.history.looks == later
