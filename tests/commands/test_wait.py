"""`gitops-ds wait` ends when the DaemonSet is rolled out, when its template fails, and at its
timeout, and reports the reason.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gitops_ds.cli.wait import by_health, by_status, watched_agents
from gitops_ds.cli.wait.by_health import WaitOptions
from gitops_ds.cli.wait.by_status import RolloutListener
from gitops_ds.core import errors, names
from gitops_ds.core.health import HealthState
from gitops_ds.core.objects import CONFIG_MAP, DAEMONSET, NODE, POD, CommitId, Key, Resource, key_of
from gitops_ds.core.rollouts.rollout_progress import RolloutProgress
from gitops_ds.core.sources.source_status import Condition, SourceStatus
from gitops_ds.core.values import replace
from gitops_ds.deploy import source_status_store, state_store
from gitops_ds.kube.apimachinery import timestamps
from gitops_ds.rollouts.state import keys
from gitops_ds.status import agent_json, agent_lists, agents
from gitops_ds.status.agents import Agent
from gitops_ds.testing.simulator import Client, virtual_time
from gitops_ds.testing.simulator.faults import SimulatedRequest, failure
from tests.apimachinery.kubelet_pods import container
from tests.simulator.setup import KEY, Setup, daemonset, set_up

OLD, NEW, LATER = (CommitId(letter * 40) for letter in "abc")


async def attend(there: Setup, **options: Any) -> list[str]:
    """The news until it was as wanted."""
    news: list[str] = []
    awaited = WaitOptions(
        **{"name": "ds/agent", "seconds": 120, "clock": virtual_time.clock(), **options}
    )
    await by_health.wait_for_rollout(there.people, "gitops-ds", awaited, news.append)
    return news


async def apply_by(there: Setup, commit: CommitId) -> None:
    """What the deployer leaves behind: the owner on the object, the object and the commit in its
    state.
    """
    owned = {
        "metadata": {
            "labels": {names.OWNER_LABEL: "fleet.main"},
            "annotations": {names.COMMIT: OLD},
        }
    }
    applied = key_of(await there.people.patch(DAEMONSET, "default", "agent", owned))
    state = await state_store.load(there.people, "gitops-ds", "fleet.main")
    state = replace(state, inventory=frozenset((applied,)))
    state = replace(state, last_good=commit, last_attempted=commit)
    await state_store.save(there.people, "gitops-ds", "fleet.main", state)


async def test_a_wait_ends_when_every_node_has_an_available_pod_with_each_message_once() -> None:
    async with set_up(3) as there:
        there.begin()
        news = await attend(there)
        assert news[-1] == "Healthy: 3 of 3 nodes available"
        assert len(set(news)) == len(news) > 1


async def test_a_template_that_fails_ends_it_at_once_with_the_reason() -> None:
    async with set_up(3) as there:
        there.begin()
        await attend(there)
        await there.edit("bad")
        began = asyncio.get_running_loop().time()
        with pytest.raises(errors.FailedRollout, match=r"ErrImagePull|ImagePullBackOff"):
            await attend(there, seconds=600)
        assert asyncio.get_running_loop().time() - began < 60


async def test_time_that_is_up_names_what_is_missing() -> None:
    async with set_up(3) as there:  # no controller creates pods
        with pytest.raises(
            errors.TimedOut,
            match=r"not done after 20 seconds: Progressing: no controller has observed "
            r"generation 1",
        ):
            await attend(there, seconds=20)


async def test_a_missing_daemonset_is_reported_without_a_commit_and_awaited_with_one() -> None:
    async with set_up(3) as there:
        with pytest.raises(errors.NoMatch, match="absent"):
            await attend(there, name="ds/absent")
        words = (
            'not done after 20 seconds: not created yet (daemonsets.apps "absent" not found: did '
            f'you mean "agent"?); waits for commit {NEW[:12]}'
        )
        with pytest.raises(errors.TimedOut) as raised:
            await attend(there, name="ds/absent", commit=NEW, seconds=20)
        assert str(raised.value) == words


async def test_a_commit_counts_when_the_deployer_has_applied_it_or_a_later_one() -> None:
    async def later_has(commit: CommitId) -> bool:
        return commit == LATER

    async with set_up(3) as there:
        there.begin()
        await apply_by(there, OLD)
        with pytest.raises(
            errors.TimedOut, match=r"is at commit a{12}, and b{12} is not applied yet"
        ):
            await attend(there, commit=NEW, seconds=20)
        waiting = asyncio.create_task(attend(there, commit=NEW[:7]))
        await asyncio.sleep(10)
        assert not waiting.done()
        await apply_by(there, NEW)
        assert (await waiting)[-1] == "Healthy: 3 of 3 nodes available"
        await apply_by(there, LATER)
        await attend(there, commit=NEW, includes=later_has)
        with pytest.raises(errors.TimedOut):
            await attend(there, commit=NEW, seconds=20)


async def test_under_on_delete_a_commit_is_rolled_out_when_the_last_old_pod_is_gone() -> None:
    async with set_up(2, daemonset(updateStrategy={"type": "OnDelete"})) as there:
        there.begin()
        await attend(there)
        await apply_by(there, NEW)
        await there.edit("agent:2")
        await attend(there)  # nothing is wrong
        with pytest.raises(errors.TimedOut):
            await attend(there, commit=NEW, seconds=20)


async def waiting_on_a_late_watch(there: Setup) -> asyncio.Task[agents.Agent]:
    """A wait for the commit NEW, with a watch that is five seconds late from now on."""
    there.begin()
    await apply_by(there, OLD)
    await attend(there, commit=OLD)
    late = there.cluster.client("late")
    awaited = WaitOptions("ds/agent", commit=NEW, seconds=120, clock=virtual_time.clock())
    waiting = asyncio.create_task(
        by_health.wait_for_rollout(late, "gitops-ds", awaited, lambda _: None)
    )
    await asyncio.sleep(5)
    late.lag = lambda _: 5.0
    return waiting


async def test_a_late_watch_ends_no_wait_before_the_generation_of_the_commit_is_rolled_out() -> (
    None
):
    async with set_up(3) as there:
        waiting = await waiting_on_a_late_watch(there)
        await there.edit("agent:2")
        await apply_by(there, NEW)
        agent = await waiting
        body = await there.people.get(DAEMONSET, "default", "agent")
        assert agent.seen.daemonset.generation == body["metadata"]["generation"] == 2
        assert await there.pods() == {(f"node-{index}", "agent:2"): 1 for index in range(3)}


async def test_a_late_watch_ends_no_wait_before_a_staged_rollout_that_keeps_the_generation() -> (
    None
):
    async with set_up(3) as there:
        waiting = await waiting_on_a_late_watch(there)
        begin = {keys.TARGET: "agent-5d8c9", keys.ROLLOUT_POLICY: '{"stages": []}'}
        await there.people.patch(
            DAEMONSET, "default", "agent", {"metadata": {"annotations": begin}}
        )
        await apply_by(there, NEW)
        await asyncio.sleep(30)
        assert not waiting.done()
        end = dict.fromkeys(begin)
        await there.people.patch(DAEMONSET, "default", "agent", {"metadata": {"annotations": end}})
        assert (await waiting).health.state is HealthState.HEALTHY


def blind(there: Setup, resource: Resource) -> Client:
    """A client that may not list the objects of a resource."""

    def deny(request: SimulatedRequest) -> errors.ClusterError | None:
        message = f'User "x" cannot list resource "{resource.plural}"'
        denied = (request.verb, request.resource) == ("list", resource)
        return errors.Forbidden(message, 403, "Forbidden") if denied else None

    return there.cluster.client("blind", faults=deny)


async def test_a_missing_permission_to_read_is_an_error_at_once() -> None:
    async with set_up(3) as there:
        client, began = blind(there, POD), asyncio.get_running_loop().time()
        awaited = WaitOptions("ds/agent", clock=virtual_time.clock())
        with pytest.raises(errors.Forbidden):
            await by_health.wait_for_rollout(client, "gitops-ds", awaited, lambda _: None)
        assert asyncio.get_running_loop().time() - began < 5


async def test_git_is_read_once_for_each_commit_that_is_applied_meanwhile() -> None:
    commits: list[CommitId] = []

    async def never(commit: CommitId) -> bool:
        commits.append(commit)
        return False

    async with set_up(3) as there:
        there.begin()
        await apply_by(there, OLD)
        with pytest.raises(errors.TimedOut):
            await attend(there, commit=NEW, seconds=60, includes=never)
        assert commits == [OLD]


async def test_a_viewer_without_a_right_to_nodes_gets_the_counts_of_the_daemonset_status() -> None:
    async with set_up(3) as there:
        there.begin()
        await attend(there)
        viewer, messages = blind(there, NODE), list[str]()
        [agent] = await agent_lists.list_agents(
            viewer, "gitops-ds", virtual_time.clock()(), messages.append
        )
        assert (agent.health.state, agent.health.message) == (
            HealthState.HEALTHY,
            "all 3 pods are available",
        )
        assert (agent.counts.desired, len(agent_json.nodes(agent))) == (3, 3)
        assert len(messages) == 1
        assert "nodes" in messages[0]


async def test_a_viewer_without_a_right_to_nodes_waits_by_the_status_of_the_daemonset() -> None:
    async with set_up(3) as there:
        viewer, messages = blind(there, NODE), list[str]()
        awaited = WaitOptions("ds/agent", seconds=120, clock=virtual_time.clock())
        waiting = asyncio.create_task(
            by_health.wait_for_rollout(viewer, "gitops-ds", awaited, messages.append)
        )
        await asyncio.sleep(5)
        assert not waiting.done()
        there.begin()
        agent = await waiting
        assert agent.health.state is HealthState.HEALTHY
        assert agent.counts.available == 3
        assert any("nodes" in message for message in messages)


def the_agent(fleet: tuple[Agent, ...]) -> tuple[Agent, ...]:
    return (agents.find_agent(fleet, "ds/agent", ""),)


async def test_a_viewer_without_a_right_to_nodes_waits_for_a_commit_and_follows_the_status() -> (
    None
):
    async with set_up(3) as there:
        there.begin()
        await apply_by(there, OLD)
        viewer, messages = blind(there, NODE), list[str]()
        awaited = WaitOptions("ds/agent", commit=NEW, seconds=600, clock=virtual_time.clock())
        shown, texts = list[Agent](), list[str]()
        fleets = list[tuple[Agent, ...]]()
        watch = watched_agents.WatchOptions("gitops-ds", virtual_time.clock(), messages.append)
        following = (
            asyncio.create_task(
                watched_agents.follow(
                    viewer, replace(watch, say=texts.append), shown.extend, the_agent
                )
            ),
            asyncio.create_task(watched_agents.follow(viewer, watch, fleets.append)),
        )
        waiting = asyncio.create_task(
            by_health.wait_for_rollout(viewer, "gitops-ds", awaited, messages.append)
        )
        await asyncio.sleep(30)
        assert not waiting.done()
        assert any("is not applied yet" in message for message in messages)
        await apply_by(there, NEW)
        agent = await waiting
        assert agent.health.state is HealthState.HEALTHY
        for task in following:
            assert not task.done()
            task.cancel()
        assert len(texts) == 1
        assert shown
        assert [one.key.name for one in fleets[-1]] == ["agent"]


async def test_a_watched_status_follows_by_watches_and_lists_no_pods_again() -> None:
    async with set_up(3) as there:
        there.begin()
        await attend(there)
        person, shown = there.cluster.client("person"), list[Agent]()
        watch = watched_agents.WatchOptions("gitops-ds", virtual_time.clock(), lambda _: None)
        following = asyncio.create_task(
            watched_agents.follow(person, watch, shown.extend, the_agent)
        )
        await asyncio.sleep(60)
        await there.edit("agent:2")
        await asyncio.sleep(240)
        following.cancel()
        last = shown[-1]
        assert (last.seen.daemonset.generation, last.health.state) == (2, HealthState.HEALTHY)
        assert person.count.by["list", "pods"] == 1


async def rolled_out(client: Client, seconds: float = 120, key: Key = KEY, **listener: Any) -> None:
    """The wait of an apply."""
    listens = RolloutListener(**{"report": lambda _: None, **listener})
    await by_status.wait_for_rollouts(client, [key], seconds, listens)


@pytest.mark.parametrize("status", [500, 503, 0])
async def test_an_apply_that_waits_outlasts_an_api_server_that_is_away_for_a_minute(
    status: int,
) -> None:
    async with set_up(3) as there:
        there.begin()
        until = asyncio.get_running_loop().time() + 60

        def away(_: SimulatedRequest) -> errors.ClusterError | None:
            if asyncio.get_running_loop().time() >= until:
                return None
            return failure(status) if status else errors.ClusterUnreachable("connection refused")

        messages: list[str] = []
        await rolled_out(there.cluster.client("person", faults=away), report=messages.append)
        assert messages[0].endswith("retrying")
        assert messages[-1].endswith("all 3 pods are available")


async def test_an_apply_that_waits_ends_at_once_for_a_deleted_object() -> None:
    async with set_up(3) as there:
        with pytest.raises(errors.NotFound):
            await rolled_out(there.people, key=replace(KEY, name="gone"))


async def test_an_apply_that_waits_reads_each_daemonset_once_and_then_watches() -> None:
    async with set_up(3) as there:
        requests: list[SimulatedRequest] = []

        client = there.cluster.client("person", faults=requests.append)
        waiting = asyncio.create_task(rolled_out(client))
        await asyncio.sleep(30)
        assert len(requests) <= 3  # get, list, watch
        there.begin()
        await waiting


async def test_an_apply_that_waits_ends_when_a_daemonset_is_deleted_and_names_what_is_missing() -> (
    None
):
    async with set_up(3) as there:
        with pytest.raises(errors.TimedOut, match=r"not rolled out after 20 seconds: .*agent"):
            await rolled_out(there.people, 20)
        waiting = asyncio.create_task(rolled_out(there.people))
        await asyncio.sleep(5)
        await there.people.delete(DAEMONSET, "default", "agent")
        with pytest.raises(errors.NotFound, match="agent"):
            await waiting


async def test_an_apply_that_waits_reports_the_nodes_that_are_done() -> None:
    async with set_up(5) as there:
        there.begin()
        await attend(there)
        await there.edit("agent:2")
        shown: list[RolloutProgress] = []
        await rolled_out(there.people, 600, progress=lambda _, now: shown.append(now))
        assert shown[0] == RolloutProgress(0, 5)
        assert {one.done for one in shown} == {0, 1, 2, 3, 4, 5}
        assert [one.done for one in shown] == sorted(one.done for one in shown)
        assert shown[-1] == RolloutProgress(5, 5)


async def test_a_wait_reports_the_nodes_that_are_done() -> None:
    async with set_up(4) as there:
        there.begin()
        shown: list[RolloutProgress] = []
        await attend(there, progress=lambda _, now: shown.append(now))
        assert shown[-1] == RolloutProgress(4, 4)


async def restarted(there: Setup, restarts: int) -> None:
    """The only agent ran for 20 seconds before a failed liveness probe, and is ready again."""
    now = virtual_time.clock()()
    end = {
        "exitCode": 137,
        "reason": "Error",
        "startedAt": timestamps.text(now - 21),
        "finishedAt": timestamps.text(now - 1),
    }
    running = {"running": {"startedAt": timestamps.text(now)}}
    status = container(running, {"terminated": end}, ready=True, restarts=restarts)
    [pod] = (await there.people.list(POD)).items
    name, patch = pod["metadata"]["name"], {"status": {"containerStatuses": [status]}}
    await there.people.patch(POD, "default", name, patch, subresource="status")


@pytest.mark.parametrize("restarts", [1, 5])
async def test_a_wait_ends_when_a_restarted_agent_has_settled(restarts: int) -> None:
    async with set_up(1) as there:
        there.begin()
        await asyncio.sleep(30)
        await restarted(there, restarts)
        clock, messages = asyncio.get_running_loop().time, list[str]()
        began, options = clock(), WaitOptions("ds/agent", clock=virtual_time.clock())
        waiting = by_health.wait_for_rollout(there.people, "gitops-ds", options, messages.append)
        if restarts > 1:
            with pytest.raises(errors.FailedRollout, match="CrashLoopBackOff"):
                await waiting
            await asyncio.sleep(70)
            await by_health.wait_for_rollout(there.people, "gitops-ds", options, messages.append)
        else:
            await waiting
            assert 59 <= clock() - began <= 65
            assert messages[0].startswith("Progressing")
        assert messages[-1] == "Healthy: 1 of 1 nodes available"


REFUSED = SourceStatus(
    "fleet.main",
    "git@example.com:fleet",
    newest=NEW,
    applied=OLD,
    message="spec.selector is immutable",
)


@pytest.mark.parametrize(
    "status",
    [
        replace(REFUSED, condition=Condition.PARTLY_APPLIED, refused=(KEY,)),
        replace(REFUSED, condition=Condition.REJECTED),
        replace(REFUSED, condition=Condition.UNVERIFIED),
    ],
)
async def test_no_wait_ends_while_the_newest_commit_of_the_agent_is_refused(
    status: SourceStatus,
) -> None:
    async with set_up(3) as there:
        there.begin()
        await attend(there)
        await apply_by(there, OLD)
        written = replace(status, written=virtual_time.clock()())
        await there.people.create(CONFIG_MAP, source_status_store.body("gitops-ds", written))
        with pytest.raises(errors.TimedOut, match=r"has an earlier commit: spec\.selector is"):
            await attend(there, seconds=30)
        assert (await attend(there, seconds=30, commit=OLD))[-1].startswith("Healthy")
        mended = replace(written, condition=Condition.SYNCED, refused=(), message="")
        waiting = asyncio.create_task(attend(there, seconds=60))
        await asyncio.sleep(10)
        body = source_status_store.body("gitops-ds", mended)
        await there.people.apply(CONFIG_MAP, body, manager="gitops-ds", force=True)
        assert any("earlier commit" in one for one in await waiting)


async def test_a_wait_ends_while_the_commit_of_another_agent_is_refused() -> None:
    async with set_up(3) as there:
        there.begin()
        await apply_by(there, OLD)
        other = replace(KEY, name="other")
        status = replace(REFUSED, condition=Condition.PARTLY_APPLIED, refused=(other,))
        written = replace(status, written=virtual_time.clock()())
        await there.people.create(CONFIG_MAP, source_status_store.body("gitops-ds", written))
        assert (await attend(there))[-1] == "Healthy: 3 of 3 nodes available"
