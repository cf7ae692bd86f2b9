"""A followed repository has one condition, and every place that shows it agrees: SYNC, page,
events, metrics, news.
"""

from __future__ import annotations

import asyncio
import copy
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from gitops_ds.cli import sources
from gitops_ds.cli.apply import reconciliation
from gitops_ds.cli.get import tables
from gitops_ds.core import errors, names
from gitops_ds.core.events.deployer import SourceChanged
from gitops_ds.core.objects import CONFIG_MAP, DAEMONSET, CommitId
from gitops_ds.core.skip_reasons import SkipReason
from gitops_ds.core.sources.source_status import EFFECTS, Condition
from gitops_ds.core.sources.source_tree import CommitInfo, SourceTree
from gitops_ds.core.values import replace
from gitops_ds.deploy import source_status_store
from gitops_ds.deploy.revision_selector import RevisionSource
from gitops_ds.deploy.target import DeployTarget
from gitops_ds.notify import kube_events, log_lines, metrics, notifications
from gitops_ds.notify.kube_events import InvolvedObject
from gitops_ds.status import agent_lists, agents
from gitops_ds.testing.simulator import virtual_time
from tests.deploy import test_loop
from tests.deploy.test_loop import AGENT, History, Scene, edit
from tests.deploy.test_requests import annotate

play = test_loop.play

STATE = InvolvedObject("v1", "ConfigMap", "gitops-ds", "gitops-ds-test")
ELSEWHERE = AGENT.format(tag="2").replace("namespace: default", "namespace: new")


async def rejected(scene: Scene) -> None:
    scene.history.push(AGENT.format(tag="2").replace("containers:", "containerz:"))


async def away(scene: Scene) -> None:
    scene.history.unreachable = True


@pytest.mark.parametrize("renamed", [False, True])
async def test_a_copy_has_no_commit_and_no_owner(scene: Scene, /, renamed: bool) -> None:
    """Also one with a tracking ID of its own, as the object would have."""
    await scene.settle()
    body = copy.deepcopy(dict(await scene.cluster.get(DAEMONSET, "default", "agent")))
    copied = {"name": "copy", "namespace": "default"}
    kept = {part: body["metadata"][part] for part in ("labels", "annotations")}
    if renamed:
        mark = str(kept["annotations"][names.TRACKING_ID])
        kept["annotations"][names.TRACKING_ID] = mark.replace("default/agent", "default/copy")
    spec = body["spec"]
    for labels in (spec["selector"]["matchLabels"], spec["template"]["metadata"]["labels"]):
        labels["app"] = "copy"
    await scene.cluster.create(DAEMONSET, {**body, "metadata": {**copied, **kept}})
    await scene.settle()
    now = virtual_time.clock()()
    original, copied_agent = await agent_lists.list_agents(scene.cluster, "gitops-ds", now)
    assert agents.commit_of(original) == scene.history.id(0)
    assert original.owner
    assert agents.commit_of(copied_agent) == ""
    assert copied_agent.owner == ""
    state, message = agents.sync_of(copied_agent)
    assert (state, message) == (
        "Unknown",
        "not applied by gitops-ds: its annotations are copied",
    )
    assert {copied_agent.commit_of(one) for one in copied_agent.history} <= {""}


async def held(scene: Scene) -> None:
    await annotate(scene, hold=scene.history.push(AGENT.format(tag="2")))


async def suspended(scene: Scene) -> None:
    scene.history.push(AGENT.format(tag="2"))
    await annotate(scene, suspend="true")


async def in_part(scene: Scene) -> None:
    scene.history.push(AGENT.format(tag="2") + "---\n" + ELSEWHERE)


TROUBLES = {
    Condition.REJECTED: rejected,
    Condition.UNREACHABLE: away,
    Condition.HELD: held,
    Condition.SUSPENDED: suspended,
    Condition.PARTLY_APPLIED: in_part,
}


async def sync(scene: Scene) -> tuple[str, str]:
    [agent] = await agent_lists.list_agents(scene.cluster, "gitops-ds", virtual_time.clock()())
    return agents.sync_of(agent)


@pytest.mark.parametrize("condition", TROUBLES, ids=str)
async def test_a_problem_is_shown_in_every_output(scene: Scene, /, condition: Condition) -> None:
    await scene.settle()
    await asyncio.sleep(10)
    assert await sync(scene) == ("Synced", "")
    await TROUBLES[condition](scene)
    await scene.settle()
    await asyncio.sleep(10)
    effect = EFFECTS[condition]
    state, why = await sync(scene)
    assert (state, bool(why)) == (effect.sync, True)
    assert tables.apart(
        await agent_lists.list_agents(scene.cluster, "gitops-ds", virtual_time.clock()())
    ) == [f"{state} (1 DaemonSet): {why}"]
    [shown] = await sources.read(scene.cluster, "gitops-ds", virtual_time.clock()())
    assert (shown.condition, shown.applied, shown.message) == (
        condition,
        scene.history.id(0),
        why,
    )
    assert scene.loop.status is not None
    assert scene.loop.status.condition is condition
    last = scene.events_of(SourceChanged)[-1]
    assert isinstance(last, SourceChanged)
    assert (last.level, last.tone) == (effect.level, effect.tone)
    reasons = {
        event.reason
        for record in scene.events
        if (event := kube_events.kube_event(record, STATE)) is not None
    }
    assert effect.reason in reasons
    counted = metrics.Metrics(metrics.MetricsSource(sources=lambda: [shown]))
    for record in scene.events:
        counted.handle(record)
    text = counted.text().decode()
    assert (
        f'gitopsds_source_condition{{condition="{condition}",'
        f'repository="{shown.repository}"}} 1.0' in text
    )
    assert f'gitopsds_commit_info{{commit="{scene.history.id(0)}"}} 1.0' in text, (
        "only what was applied as a whole"
    )
    assert ('result="partial"' in text) == (condition is Condition.PARTLY_APPLIED)


async def test_a_commit_in_which_another_owner_keeps_an_object_is_not_shown_as_applied(
    scene: Scene, /
) -> None:
    await scene.settle()
    await asyncio.sleep(10)
    helm = {
        "labels": {"app.kubernetes.io/managed-by": "Helm"},
        "annotations": {"meta.helm.sh/release-name": "x"},
    }
    theirs = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": "default", "name": "theirs", **helm},
    }
    await scene.cluster.client("helm").create(CONFIG_MAP, theirs)
    ours = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: theirs, namespace: default}\n"
    commit = scene.history.push(AGENT.format(tag="2") + ours)
    await scene.settle()
    await asyncio.sleep(10)
    [shown] = await sources.read(scene.cluster, "gitops-ds", virtual_time.clock()())
    assert (shown.condition, shown.newest) == (Condition.PARTLY_APPLIED, commit)
    assert shown.applied == scene.history.id(0)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "condition",
    [Condition.REJECTED, Condition.UNREACHABLE, Condition.HELD, Condition.PARTLY_APPLIED],
)
async def test_people_are_notified_of_it(scene: Scene, /, condition: Condition) -> None:
    await scene.settle()
    await TROUBLES[condition](scene)
    for _ in range(30):
        await scene.settle()
    fold = notifications.NotificationBuilder()
    pieces = [
        piece for record in scene.events if (piece := fold.handle(record, "fleet")) is not None
    ]
    assert [piece for piece in pieces if piece.loud]
    applied = [piece.commit for piece in pieces if piece.topic == "applied"]
    assert set(applied) <= {scene.history.id(0)}


async def test_without_a_service_nothing_is_in_sync_and_no_commit_is_claimed_for_a_spec_of_others(
    scene: Scene, /
) -> None:
    await scene.settle()
    await asyncio.sleep(10)
    scene.loop.stop()
    await asyncio.sleep(10)
    assert await sync(scene) == ("Unknown", agents.UNFOLLOWED)
    [agent] = await agent_lists.list_agents(scene.cluster, "gitops-ds", virtual_time.clock()())
    assert agents.commit_of(agent) == scene.history.id(0)
    await edit(scene.cluster, "3")
    [agent] = await agent_lists.list_agents(scene.cluster, "gitops-ds", virtual_time.clock()())
    assert agents.commit_of(agent) == ""


async def test_the_last_answer_of_git_is_a_bound_while_it_answers_and_exact_when_it_does_not(
    scene: Scene, /
) -> None:
    await scene.settle()
    for _ in range(60):
        scene.loop.request()
        await asyncio.sleep(10)
    now = virtual_time.clock()()
    [shown] = await sources.read(scene.cluster, "gitops-ds", now)
    (cell,) = re.findall("at most .* ago", sources.table_of((shown,), now, wide=False))
    assert scene.loop.status is not None
    assert shown.looked <= scene.loop.status.looked
    assert now - scene.loop.status.looked < 20 < now - shown.looked, cell
    scene.history.unreachable = True
    scene.loop.request()
    await asyncio.sleep(60)
    now = virtual_time.clock()()
    [shown] = await sources.read(scene.cluster, "gitops-ds", now)
    assert shown.looked == scene.loop.status.looked
    assert "at most" not in sources.table_of((shown,), now, wide=False)


class Renamed(History):
    """A branch that is renamed."""

    name = ""

    def source(self, **options: Any) -> RevisionSource:
        return replace(super().source(**options), branch=lambda: self.name)


def test_the_status_has_the_name_of_the_branch_that_git_answered_last() -> None:
    history = Renamed()

    async def script(scene: Scene) -> None:
        for name in ("main", "trunk"):
            history.name = name
            await scene.settle()
            await asyncio.sleep(10)
            [shown] = await sources.read(scene.cluster, "gitops-ds", virtual_time.clock()())
            assert shown.branch == name

    test_loop.play(script, history=history)


async def test_a_service_that_was_killed_counts_until_two_heartbeats_are_missed(
    scene: Scene, /
) -> None:
    await scene.settle()
    await asyncio.sleep(source_status_store.HEARTBEAT * 4)
    assert (await sync(scene))[0] == "Synced", "a heartbeat keeps it current"
    body = await scene.cluster.get(
        CONFIG_MAP, "gitops-ds", source_status_store.config_map_name("test")
    )
    now = virtual_time.clock()()
    statuses = await source_status_store.load_all(
        scene.cluster,
        "gitops-ds",
        now + source_status_store.FRESH + source_status_store.HEARTBEAT,
    )
    assert not statuses["test"].active
    assert body["data"]["condition"] == "Synced"


async def test_an_apply_of_another_commit_beside_a_running_service_is_refused(
    scene: Scene, /
) -> None:
    await scene.settle()
    await asyncio.sleep(10)
    place = DeployTarget(scene.cluster, "gitops-ds", "test", "", clock=virtual_time.clock())

    def snapshot(commit: str) -> SourceTree:
        return SourceTree(CommitInfo(CommitId(commit), (), datetime.now(UTC), "Ann", "one"), {})

    await reconciliation.refuse_beside_a_service(place, snapshot(scene.history.id(0)))
    with pytest.raises(errors.Refused, match="--force-local"):
        await reconciliation.refuse_beside_a_service(place, snapshot("f" * 40))
    scene.loop.stop()
    await asyncio.sleep(10)
    await reconciliation.refuse_beside_a_service(place, snapshot("f" * 40))


def test_every_condition_has_an_effect_and_every_guard_a_row() -> None:
    assert set(EFFECTS) == set(Condition)
    assert {effect.tone for effect in EFFECTS.values()} <= {"good", "warn", "bad", "plain"}
    assert {effect.level for effect in EFFECTS.values()} <= set(log_lines.LEVELS)
    undone = {
        SkipReason.CONFLICT,
        SkipReason.UNKNOWN_KIND,
        SkipReason.NO_NAMESPACE,
        SkipReason.QUARANTINED,
        SkipReason.IMPERSONATION,
        SkipReason.CROSS_NAMESPACE,
    }
    assert all(reason.effect.event_reason and reason.effect.fails_commit for reason in undone)
