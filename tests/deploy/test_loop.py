"""The deployer's loop on the simulated cluster, hours in milliseconds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import PurePosixPath
from typing import Any, TypeVar

import pytest

from gitops_ds.core import errors
from gitops_ds.core.cluster import PatchType
from gitops_ds.core.deployer_state import Push
from gitops_ds.core.events import base, deployer
from gitops_ds.core.events.base import Event
from gitops_ds.core.events.commits import CommitRejected
from gitops_ds.core.events.requests import PushForwarded
from gitops_ds.core.objects import DAEMONSET, NAMESPACE, SECRET, Body, CommitId, Resource
from gitops_ds.core.rollouts.halted_rollout import BranchCommit, FileChange
from gitops_ds.core.rollouts.template_cause import RenderedCommit
from gitops_ds.core.sources.source_tree import CommitInfo, SourceTree
from gitops_ds.deploy import loop as deployer_loop
from gitops_ds.deploy import (
    requests,
    revision_selector,
    source_status_store,
    state_store,
    watch_cache,
)
from gitops_ds.deploy.cause_finder import CauseFinder, CommitSource
from gitops_ds.deploy.pipeline import prepare
from gitops_ds.deploy.revision_selector import RevisionSource
from gitops_ds.deploy.target import DeployTarget
from gitops_ds.kube.apimachinery.builtin_resources import RESOURCES
from gitops_ds.ownership.options import ApplyOptions
from gitops_ds.rollouts.causes import template_digests
from gitops_ds.rollouts.state.rollout_ledger import RolloutLedger
from gitops_ds.source.git.object_reader import BranchMovement
from gitops_ds.source.render import bundle as rendering
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import NodeSpec, virtual_time
from gitops_ds.testing.simulator.faults import Silence, SimulatedRequest, failure
from gitops_ds.yaml import parser
from tests.deploy.test_live_state import DEFINITION as PROBES
from tests.deploy.test_live_state import PROBE as ONE_PROBE

AGENT = """\
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: agent, namespace: default}}
spec:
  selector: {{matchLabels: {{app: agent}}}}
  template:
    metadata: {{labels: {{app: agent}}}}
    spec:
      containers: [{{name: agent, image: "example.com/agent:{tag}"}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: agent, namespace: default}}
data: {{level: info}}
"""


E = TypeVar("E", bound=Event)


@dataclass
class History:
    """A repository in memory: commits in a row, the tip anywhere among them."""

    commits: list[str] = field(default_factory=list)
    at: int = -1
    unreachable: bool = False
    files_away: bool = False
    seconds: float = 0.0  # of each read of files
    answers: asyncio.Event | None = None  # the server hangs until it is set
    looks: int = 0
    renders: int = 0  # commits that were rendered to find causes
    meanwhile: Callable[[], None] = lambda: None

    def push(self, text: str) -> CommitId:
        self.commits.append(text)
        self.at = len(self.commits) - 1
        return self.id(self.at)

    def id(self, index: int) -> CommitId:
        return CommitId(f"{index + 1:040x}")

    async def tip(self) -> CommitId:
        self.looks += 1
        self.meanwhile()
        if self.answers is not None:
            await self.answers.wait()
        if self.unreachable:
            raise errors.SourceUnreachable("the server gave no answer")
        return self.id(self.at)

    async def snapshot(self, commit: CommitId) -> SourceTree:
        await asyncio.sleep(self.seconds)
        index = self.index(commit)
        if self.files_away and index == self.at:
            raise errors.SourceUnreachable("the server gave no files")
        return self.tree(commit)

    def tree(self, commit: CommitId) -> SourceTree:
        files = self.files(self.commits[self.index(commit)])
        return SourceTree(
            self.info(commit), {PurePosixPath(name): text.encode() for name, text in files.items()}
        )

    def info(self, commit: CommitId) -> CommitInfo:
        index, at = self.index(commit), datetime(2026, 1, 1, tzinfo=UTC)
        parents = (self.id(index - 1),) if index else ()
        return CommitInfo(commit, parents, at, "Ann <ann@example.com>", self.subject(commit))

    async def line(
        self, since: CommitId | None, head: CommitId, limit: int
    ) -> tuple[BranchCommit, ...]:
        """The commits after one (None: all), newest first."""
        numbers = range(self.index(head), -1 if since is None else self.index(since), -1)
        return tuple(self._branch_commit(self.id(number)) for number in numbers)[:limit]

    def _branch_commit(self, commit: CommitId) -> BranchCommit:
        info = self.info(commit)
        after = self.tree(commit).files
        before = self.tree(info.parents[0]).files if info.parents else {}
        names = [name for name in {*before, *after} if before.get(name) != after.get(name)]
        changes = {
            str(name): FileChange("a" * (name in before), "b" * (name in after)) for name in names
        }
        return BranchCommit(info, info.subject, changes)

    async def render(self, commits: Sequence[CommitId]) -> dict[CommitId, RenderedCommit]:
        """What commits render to."""
        self.renders += len(commits)
        return {
            commit: template_digests.rendered(rendering.render(self.tree(commit)))
            for commit in commits
        }

    def index(self, commit: CommitId) -> int:
        return int(commit, 16) - 1

    def subject(self, commit: CommitId) -> str:
        return f"commit {self.index(commit) + 1}"

    def files(self, text: str) -> dict[str, str]:
        """The files of a commit with this text."""
        return {"agent.yaml": text}

    async def movement(self, last: CommitId, tip: CommitId) -> BranchMovement:
        return BranchMovement.REWOUND if int(tip, 16) < int(last, 16) else BranchMovement.FORWARD

    def source(self, **options: Any) -> RevisionSource:
        """The source of a deployer; `options` are those of `prepare`."""
        prepared = revision_selector.prepare_directly(partial(prepare.prepare, **options))
        causes = CauseFinder(CommitSource(self.line, self.render))
        return RevisionSource(self.tip, self.snapshot, self.movement, prepared, causes=causes)


@dataclass
class Scene:
    cluster: simulator.SimulatedCluster
    client: simulator.Client
    history: History
    loop: deployer_loop.Loop
    events: list[Event]

    def events_of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    async def settle(self) -> None:
        """A minute in which the schedule requests a fetch every five seconds."""
        for _ in range(12):
            self.loop.request()
            await asyncio.sleep(5)

    async def image(self) -> str:
        body = await self.cluster.get(DAEMONSET, "default", "agent")
        return str(body["spec"]["template"]["spec"]["containers"][0]["image"]).rpartition(":")[2]


def announced_in(ledger: RolloutLedger | None) -> dict[str, Any]:
    """The part of a target that a ledger decides."""
    if ledger is None:
        return {}
    return {"attested": ledger.attested, "announce": ledger.announce_daemonsets}


def loop_on(
    cluster: simulator.SimulatedCluster,
    client: simulator.Client,
    history: History,
    events: list[Event],
    options: ApplyOptions,
    skew: Sequence[float] = (0.0,),
    repository: str = "memory",
    ledger: RolloutLedger | None = None,
    namespace: str = "gitops-ds",
) -> deployer_loop.Loop:
    """`skew` has the seconds by which the wall clock is wrong."""
    target = DeployTarget(client, namespace, "test", repository, **announced_in(ledger))
    timing = deployer_loop.LoopTiming(
        5.0, lambda: cluster.server.now() + skew[0], random.Random(1).random
    )
    return deployer_loop.Loop(history.source(), target, options, events.append, timing)


def play(
    script: Callable[[Scene], Awaitable[None]],
    options: ApplyOptions = ApplyOptions(patience=0.0),  # noqa: B008
    history: History | None = None,
    skew: Sequence[float] = (0.0,),
) -> None:
    async def main() -> None:
        async with simulator.SimulatedCluster() as cluster:
            cluster.add_nodes(NodeSpec(f"node-{n}") for n in range(3))
            source, events, client = history or History(), [], cluster.client()
            if not source.commits:
                source.push(AGENT.format(tag="1"))
            loop = loop_on(cluster, client, source, events, options, skew)
            running = asyncio.create_task(loop.run())
            await script(Scene(cluster, client, source, loop, events))
            loop.stop()
            await running

    virtual_time.run(main())


async def test_an_unchanged_commit_on_an_unchanged_cluster_costs_no_request(
    scene: Scene, /
) -> None:
    await scene.settle()
    before = scene.client.count.total - scene.client.count.of("watch")
    looks = scene.history.looks
    for _ in range(50):
        scene.loop.request()
        await asyncio.sleep(1)
    assert scene.history.looks == looks + 50
    assert scene.client.count.total - scene.client.count.of("watch") == before


async def test_a_commit_is_applied_and_noted_with_its_revision(scene: Scene, /) -> None:
    await scene.settle()
    commit = scene.history.push(AGENT.format(tag="2"))
    await scene.settle()
    assert await scene.image() == "2"
    state = await state_store.load(scene.cluster, "gitops-ds", "test")
    assert state.last_good == state.last_attempted == commit
    assert commit in next(iter(state.commits.values())).values()


async def test_a_commit_that_waits_for_other_repositories_is_not_a_lack_of_progress_a_silent_api_is(
    scene: Scene, /
) -> None:
    await scene.settle()
    scene.history.seconds = 1000
    scene.history.push(AGENT.format(tag="2"))
    scene.loop.request()
    await asyncio.sleep(999)
    assert not scene.loop.idle
    assert scene.loop.seconds_without_progress == 0
    scene.client.faults = lambda _request: Silence(400)
    await asyncio.sleep(301)
    assert not scene.loop.idle
    assert scene.loop.seconds_without_progress == pytest.approx(300)
    scene.client.faults = lambda _request: None


async def test_a_wish_during_a_pass_is_not_lost(scene: Scene, /) -> None:
    await scene.settle()
    scene.history.push(AGENT.format(tag="2"))
    scene.loop.request()
    await asyncio.sleep(0)
    assert not scene.loop.idle
    scene.history.push(AGENT.format(tag="3"))
    scene.loop.request()
    await asyncio.sleep(10)
    assert await scene.image() == "3"


async def test_a_commit_with_a_mistake_changes_nothing_and_the_last_good_one_is_kept_up(
    scene: Scene, /
) -> None:
    await scene.settle()
    bad = scene.history.push(AGENT.format(tag="2").replace("containers:", "containerz:"))
    await scene.settle()
    rejected = scene.events_of(CommitRejected)
    assert [record.commit for record in rejected] == [bad]
    assert rejected[0].findings[0].place is not None
    assert await scene.image() == "1"
    await edit(scene.cluster)
    await scene.settle()
    assert await scene.image() == "1"


def with_image(tag: str) -> Body:
    """The patch of `kubectl set image`."""
    containers = [{"name": "agent", "image": f"example.com/agent:{tag}"}]
    return {"spec": {"template": {"spec": {"containers": containers}}}}


async def edit(cluster: simulator.SimulatedCluster, tag: str = "9") -> None:
    """What `kubectl set image` does."""
    person = cluster.client("kubectl-set")
    await person.patch(DAEMONSET, "default", "agent", with_image(tag), type=PatchType.STRATEGIC)


IN_A_NEW_NAMESPACE = AGENT.format(tag="2").replace("namespace: default", "namespace: new")
OF_A_NEW_KIND = ONE_PROBE.replace("name: one", "name: one, namespace: default")
NEW = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}}
PROBE = Resource("example.com", "v1", "Probe", "probes", namespaced=True)
DEFINITIONS = RESOURCES["apiextensions.k8s.io", "CustomResourceDefinition"]
DEFINITION = (
    parser.read("probes.yaml", PROBES.format(scope="Namespaced").encode()).documents[0].value
)


@pytest.mark.sampled
@pytest.mark.parametrize("every", [1.0, 30.0])
@pytest.mark.parametrize(
    ("text", "times", "resource", "missing", "expected"),
    [
        (IN_A_NEW_NAMESPACE, 2, NAMESPACE, NEW, (DAEMONSET, "new", "agent")),
        (OF_A_NEW_KIND, 1, DEFINITIONS, DEFINITION, (PROBE, "default", "one")),
    ],
    ids=("namespace", "kind"),
)
async def test_a_refused_object_is_reported_once_retried_with_a_back_off_and_applied_when_possible(
    scene: Scene,
    /,
    text: str,
    times: int,
    resource: Resource,
    missing: Body,
    expected: tuple[Resource, str, str],
    every: float,
) -> None:
    async def minutes(scene: Scene, count: int) -> None:
        for _ in range(int(count * 60 / every)):
            scene.loop.request()
            await asyncio.sleep(every)

    await scene.settle()
    scene.history.push(AGENT.format(tag="2") + "---\n" + text)
    await minutes(scene, 2)
    assert await scene.image() == "2"
    before = scene.client.count.total - scene.client.count.of("watch")
    await minutes(scene, 60)
    # each reads the status and those of other namespaces, and writes it
    heartbeats = 3 * 3600 / source_status_store.HEARTBEAT
    assert (
        scene.client.count.total - scene.client.count.of("watch") - before < 60 / 5 * 5 + heartbeats
    )
    assert (
        len(scene.events_of(deployer.NotApplied) + scene.events_of(deployer.ChangeSkipped)) == times
    )
    await scene.cluster.create(resource, missing)
    await minutes(scene, 6)
    assert await scene.cluster.get(*expected)


ONE_SECRET = "apiVersion: v1\nkind: Secret\nmetadata: {name: token, namespace: default}\n"


@pytest.mark.parametrize(
    "refusal",
    [
        failure(403, "secrets is forbidden"),
        failure(404),
        failure(500, "conversion webhook for secrets failed"),
        errors.ClusterError("the server does not allow this method on the resource", 405),
    ],
    ids=lambda error: str(error.status),
)
async def test_a_kind_that_cannot_be_listed_delays_no_other_object_and_is_applied_when_possible(
    scene: Scene, /, refusal: errors.ClusterError
) -> None:
    def refused(request: SimulatedRequest) -> errors.ClusterError | None:
        return refusal if request.resource == SECRET else None

    await scene.settle()
    scene.client.faults = refused
    for tag in "23":
        scene.history.push(AGENT.format(tag=tag) + "---\n" + ONE_SECRET)
        await scene.settle()
        assert await scene.image() == tag
    [skipped] = scene.events_of(deployer.ChangeSkipped)
    assert skipped.refusal.message.startswith(f"Secret default/token can't be read: {refusal}")
    assert not scene.events_of(deployer.ReconcileFailed)
    scene.client.faults = lambda request: None
    await asyncio.sleep(600)
    assert await scene.cluster.get(SECRET, "default", "token")


async def test_an_object_of_a_kind_that_cannot_be_listed_stays_in_the_inventory(
    scene: Scene, /
) -> None:
    await scene.settle()
    scene.history.push(AGENT.format(tag="2") + "---\n" + ONE_SECRET)
    await scene.settle()
    scene.loop.stop()
    client = scene.cluster.client()
    client.faults = lambda request: failure(403) if request.resource == SECRET else None
    options = ApplyOptions(patience=0.0)
    again = loop_on(scene.cluster, client, scene.history, scene.events, options)
    running = asyncio.create_task(again.run())
    scene.history.push(AGENT.format(tag="3") + "---\n" + ONE_SECRET)
    await replace(scene, loop=again).settle()
    assert await scene.image() == "3"
    state = await state_store.load(scene.cluster, "gitops-ds", "test")
    assert {key.kind for key in state.inventory} == {"ConfigMap", "DaemonSet", "Secret"}
    again.stop()
    await running


async def test_a_definition_and_an_object_of_it_are_applied_with_one_commit(
    scene: Scene, /
) -> None:
    await scene.settle()
    both = f"{PROBES.format(scope='Namespaced')}---\n{OF_A_NEW_KIND}"
    scene.history.push(f"{AGENT.format(tag='2')}---\n{both}")
    await scene.settle()
    assert await scene.image() == "2"
    assert await scene.cluster.get(PROBE, "default", "one")


async def test_nothing_is_in_sync_on_a_list_that_is_older_than_the_bound(scene: Scene, /) -> None:
    await scene.settle()
    scene.client.faults = lambda r: (
        failure(403) if r.resource == DAEMONSET and r.verb in ("list", "watch") else None
    )
    scene.client.cut_watches()
    began = asyncio.get_running_loop().time()
    unchanged: list[float] = []
    while (now := asyncio.get_running_loop().time() - began) < 3600:
        before = len(scene.events_of(deployer.Unchanged))
        scene.loop.request()
        await asyncio.sleep(30)
        if len(scene.events_of(deployer.Unchanged)) > before:
            unchanged.append(now)
    assert max(unchanged) < watch_cache.OLDEST_PICTURE + 60
    failed = [
        event.message
        for event in scene.events_of(deployer.ReconcileFailed)
        if isinstance(event, deployer.ReconcileFailed)
    ]
    assert failed == ["the last list of daemonsets is more than 11 minutes old: forbidden"]
    scene.client.faults = lambda _request: None
    scene.history.push(AGENT.format(tag="2"))
    await scene.settle()
    assert await scene.image() == "2"


async def test_a_watch_that_dies_of_an_internal_error_is_reported_and_restarted(
    scene: Scene, /
) -> None:
    await scene.settle()
    broken = True

    def faults(request: SimulatedRequest) -> errors.ClusterError | None:
        if broken and request.resource == DAEMONSET and request.verb in ("list", "watch"):
            raise RuntimeError("can't start new thread")
        return None

    scene.client.faults = faults
    scene.client.cut_watches()
    await asyncio.sleep(600)
    restarts = [event for event in scene.events if isinstance(event, base.TaskRestarted)]
    assert {event.task for event in restarts} == {"watch daemonsets"}
    assert 5 <= len(restarts) <= 20
    broken = False
    await asyncio.sleep(60)
    await scene.client.delete(DAEMONSET, "default", "agent")
    await asyncio.sleep(30)
    assert await scene.image() == "1"


async def test_a_push_announced_to_another_replica_is_fetched_until_the_server_shows_it(
    scene: Scene, /
) -> None:
    await scene.settle()
    coming = CommitId(f"{len(scene.history.commits) + 1:040x}")
    standby = scene.cluster.client()
    await requests.forward_push(
        standby, ("gitops-ds", "test"), Push(coming), scene.cluster.server.now()
    )
    await asyncio.sleep(10)
    assert [event.commit for event in scene.events_of(PushForwarded)] == [coming]
    assert scene.history.push(AGENT.format(tag="2")) == coming
    await asyncio.sleep(20)
    assert await scene.image() == "2"
    looks = scene.history.looks
    await asyncio.sleep(600)
    assert scene.history.looks - looks <= 1, "a commit that was found causes no further looks"


async def test_a_push_that_cannot_be_announced_does_no_harm(scene: Scene, /) -> None:
    standby = scene.cluster.client()
    standby.faults = lambda _request: failure(503)
    await requests.forward_push(standby, ("gitops-ds", "test"), Push(), 0.0)
    await requests.forward_push(scene.cluster.client(), ("gitops-ds", "missing"), Push(), 0.0)
    await scene.settle()
    assert not scene.events_of(PushForwarded)


async def config_maps(scene: Scene) -> list[str]:
    from gitops_ds.core.cluster import Selection
    from gitops_ds.core.objects import CONFIG_MAP

    listing = await scene.cluster.list(CONFIG_MAP, Selection(namespace="default"))
    return [str(body["metadata"]["name"]) for body in listing.items]


@pytest.mark.parametrize("after", [0.0, 0.001, 0.002, 0.005, 0.01, 0.05, 0.5, 1.0])
async def test_killed_at_any_instant_the_next_process_continues(
    scene: Scene, /, after: float
) -> None:
    scene.history.push(AGENT.format(tag="2"))
    doomed_heard: list[Event] = []
    doomed = asyncio.create_task(
        loop_on(
            scene.cluster,
            scene.cluster.client(),
            scene.history,
            doomed_heard,
            ApplyOptions(patience=0.0),
        ).run()
    )
    await asyncio.sleep(after)
    doomed.cancel()
    await asyncio.gather(doomed, return_exceptions=True)
    await scene.settle()
    assert await scene.image() == "2"
    state = await state_store.load(scene.cluster, "gitops-ds", "test")
    assert len(state.inventory) == 2
    assert state.last_good == scene.history.id(1)
