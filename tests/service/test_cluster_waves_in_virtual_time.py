"""A commit is applied to three simulated clusters in an order, in virtual time: deployer, DaemonSet
controller, status and publisher of each cluster, and one repository that only keeps refs.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field

import pytest

from gitops_ds.cli.requests import service_requests
from gitops_ds.cli.requests.service_requests import StateObject
from gitops_ds.controller.controller import Controller
from gitops_ds.core import errors
from gitops_ds.core.decision import Powers
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.events.base import Event
from gitops_ds.core.events.commits import CommitOverdue, CommitWaits, ReportFailed
from gitops_ds.core.events.deployer import Reconciled, SourceChanged
from gitops_ds.core.objects import DAEMONSET, CommitId
from gitops_ds.core.rollouts import cluster_report
from gitops_ds.core.rollouts.cluster_report import ClusterOrder, ClusterReport
from gitops_ds.core.sources.signatures import Mode, Trust, Unverified, Verified
from gitops_ds.core.sources.source_status import Condition, SourceStatus
from gitops_ds.core.values import replace
from gitops_ds.deploy import loop as deployer_loop
from gitops_ds.deploy import requests
from gitops_ds.deploy.target import DeployTarget
from gitops_ds.deploy.wave_gate import WaveSource
from gitops_ds.ownership.options import ApplyOptions
from gitops_ds.rollouts.waves.cluster_waves import ClusterReports
from gitops_ds.service.rollouts import published_reports
from gitops_ds.service.rollouts.published_reports import OwnPlace, ReportPublisher
from gitops_ds.service.rollouts.repository_context import RepositoryContext
from gitops_ds.service.settings.repository import RepositorySettings
from gitops_ds.source.git.cluster_refs import ReportRef
from gitops_ds.source.git.commit_writer import Signature
from gitops_ds.source.git.revision import RevisionSpec
from gitops_ds.status.cluster_reports import ReportInput
from gitops_ds.status.tracker import StatusTracker
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import Behaviour, NodeSpec, PodFault, Trouble, virtual_time
from tests.deploy.rollout_scene import Processes
from tests.deploy.test_loop import AGENT, History

ORDER = {
    "staging": "{}\n",
    "eu-1": "after: {clusters: [staging], soak: 10m, within: 2h}\n",
    "eu-2": "after: [eu-1]\n",
}
INTERVAL = 30.0
BAD = "bad"


@dataclass
class Branch(History):
    """The branch with the files of the clusters; messages by commit."""

    order: dict[str, str] = field(default_factory=lambda: dict(ORDER))
    messages: dict[CommitId, str] = field(default_factory=dict)

    def change(self, tag: str, message: str = "A change") -> CommitId:
        commit = self.push(AGENT.format(tag=tag))
        self.messages[commit] = message
        return commit

    def id(self, index: int) -> CommitId:
        """Ids whose first digits differ."""
        return CommitId(f"{index + 1:08x}{0:032x}")

    def index(self, commit: CommitId) -> int:
        return int(commit[:8], 16) - 1

    def subject(self, commit: CommitId) -> str:
        return self.messages[commit]

    def files(self, text: str) -> dict[str, str]:
        return {
            "gitops-ds.yaml": "version: v1\nname: fleet\n",
            "agents/agent/agent-ds.yaml": text,
            **{f"clusters/{name}.yaml": text for name, text in self.order.items()},
        }

    async def earlier(
        self, since: CommitId, tip: CommitId, among: Collection[CommitId]
    ) -> CommitId | None:
        """As `git.branch_history` finds it, of the one file that changes."""
        now, before = self.content(tip), self.content(since)
        if now == before:
            return since
        first = next(text for text in self.commits if text in (now, before))
        found = (one for one in sorted(among, reverse=True) if self.content(one) == now)
        return next(found, None) if first == now else None

    def content(self, commit: CommitId) -> str:
        return self.commits[self.index(commit)]


@dataclass
class Refs:
    """The refs of reports; a push moves a ref only from the expected commit."""

    refs: dict[str, ReportRef] = field(default_factory=dict)
    pushes: dict[str, list[ClusterReport]] = field(default_factory=dict)
    away: bool = False

    async def cluster_reports(self, path: str, clusters: Sequence[str]) -> tuple[ReportRef, ...]:
        self._require()
        return tuple(self.refs[name] for name in clusters if name in self.refs)

    async def publish_report(
        self, path: str, report: ReportRef, expect: CommitId | None, by: Signature
    ) -> CommitId:
        self._require()
        before = self.refs.get(report.cluster)
        if (before.commit if before else None) != expect:
            raise errors.PushRejected("the ref has moved")
        rows = self.pushes.setdefault(report.cluster, [])
        commit = CommitId(f"{len(rows) + 1:040x}")
        self.refs[report.cluster] = ReportRef(report.cluster, commit, report.data)
        rows.append(cluster_report.decode(report.data))
        return commit

    async def verify_kept(
        self, revision: RevisionSpec, commit: CommitId, trust: Trust
    ) -> Verified | Unverified:
        raise NotImplementedError

    def _require(self) -> None:
        if self.away:
            raise errors.SourceUnreachable("the server gave no answer")


@dataclass
class Service(Processes):
    """The service of one cluster; `kill` ends it at once."""

    name: str
    cluster: simulator.SimulatedCluster
    branch: Branch
    refs: Refs
    push: bool = True
    events: list[Event] = field(default_factory=list)
    loop: deployer_loop.Loop | None = None

    def start(self) -> None:
        client, clock = self.cluster.client("gitops-ds"), self.cluster.server.now
        waves = WaveSource(self._reports, self.branch.earlier)
        source = replace(self.branch.source(cluster=self.name), waves=waves)
        place = DeployTarget(client, "gitops-ds", f"fleet.{self.name}", "memory")
        timing = deployer_loop.LoopTiming(5.0, clock, random.Random(1).random)
        options = ApplyOptions(patience=0.0)
        loop = self.loop = deployer_loop.Loop(source, place, options, self._emit, timing)
        controller = Controller(
            client, Powers.FULL, lambda _: None, clock=clock, chance=random.Random(2).random
        )
        self.tracker = StatusTracker(
            controller.observer,
            lambda: {loop.owner: loop.deployer_state} if loop.deployer_state else {},
            clock,
            deadline=300.0,
        )
        settings = RepositorySettings(url="memory", push=self.push)
        self.publisher = ReportPublisher(
            RepositoryContext(
                self.refs, settings, self.events.append, clock, random.Random(3).random
            ),
            self._place,
        )
        self.begin(
            loop.run(),
            controller.run(),
            self.tracker.run(),
            self.publisher.run(),
            self._schedule(loop),
            self._wake(),
        )

    async def _schedule(self, loop: deployer_loop.Loop) -> None:
        while True:
            loop.request()
            await asyncio.sleep(INTERVAL)

    async def _wake(self) -> None:
        async for _ in self.tracker.changed():
            self.publisher.wake()

    def _emit(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, Reconciled | SourceChanged):
            self.tracker.handle(event)
            self.publisher.wake()

    async def _reports(self, order: ClusterOrder) -> ClusterReports:
        return published_reports.of(
            await published_reports.read(self.refs, "", order.after, Trust(Mode.NONE))
        )

    def _place(self) -> OwnPlace | None:
        loop = self.loop
        if loop is None or loop.bundle is None or loop.deployer_state is None:
            return None
        assert loop.status is not None
        agents = [agent for agent in self.tracker.agents() if agent.owner == loop.owner]
        expected = {key for key in loop.manifests if key.is_daemonset}
        inputs = ReportInput(self.name, loop.status, loop.deployer_state, expected, agents)
        return OwnPlace(loop.bundle.cluster.order, inputs)

    @property
    def status(self) -> SourceStatus:
        assert self.loop is not None
        assert self.loop.status is not None
        return self.loop.status

    async def image(self) -> str:
        try:
            body = await self.cluster.get(DAEMONSET, "default", "agent")
        except errors.NotFound:
            return ""
        return str(body["spec"]["template"]["spec"]["containers"][0]["image"]).rpartition(":")[2]

    def of(self, kind: type[Event]) -> list[str]:
        return [event.text() for event in self.events if isinstance(event, kind)]


@dataclass
class Fleet:
    """The clusters in their order, the branch, the refs."""

    branch: Branch
    refs: Refs
    services: dict[str, Service]

    async def images(self) -> list[str]:
        return [await service.image() for service in self.services.values()]

    async def until(self, images: list[str], minutes: float = 60) -> float:
        """Returns the seconds until the clusters have these images."""
        clock = asyncio.get_running_loop().time
        began = clock()
        while await self.images() != images:
            for service in self.services.values():
                service.check()
            assert clock() - began < minutes * 60, (
                await self.images(),
                [service.status.message for service in self.services.values()],
                {name: rows[-1] for name, rows in self.refs.pushes.items()},
            )
            await asyncio.sleep(1)
        return clock() - began


@contextlib.asynccontextmanager
async def fleet(branch: Branch) -> AsyncIterator[Fleet]:
    refs, services = Refs(), dict[str, Service]()
    async with contextlib.AsyncExitStack() as stack:
        for name in branch.order:
            behaviour = Behaviour(faults=(PodFault(f"*:{BAD}", Trouble.NEVER_PULLED),))
            cluster = await stack.enter_async_context(simulator.SimulatedCluster(behaviour))
            cluster.add_nodes(NodeSpec(f"{name}-{n}") for n in range(3))
            services[name] = Service(name, cluster, branch, refs)
        for service in services.values():
            service.start()
        try:
            yield Fleet(branch, refs, services)
        finally:
            for service in services.values():
                service.kill()


def play(script: Callable[[Fleet], Awaitable[None]], order: dict[str, str] | None = None) -> None:
    """Runs a script on clusters that all have the first image."""

    async def main() -> None:
        branch = Branch(order=dict(order or ORDER))
        branch.change("1")
        async with fleet(branch) as clusters:
            await clusters.until(["1"] * len(clusters.services))
            await asyncio.sleep(900)
            await script(clusters)
            for service in clusters.services.values():
                service.check()

    virtual_time.run(main())


async def test_a_commit_continues_to_the_next_cluster_after_the_soak(clusters: Fleet, /) -> None:
    eu1, eu2 = clusters.services["eu-1"], clusters.services["eu-2"]
    commit = clusters.branch.change("2")
    await clusters.until(["2", "1", "1"], minutes=2)
    await asyncio.sleep(120)
    assert eu1.status.condition is Condition.WAITING
    assert eu1.status.message.startswith(
        f"commit {commit[:12]} waits for cluster staging: soak of 10m until "
    )
    assert eu1.status.message.endswith("stays applied")
    assert eu1.status.newest == commit
    assert "waits for cluster eu-1: commit" in eu2.status.message
    waited = await clusters.until(["2", "2", "1"])
    assert 450 < waited < 560
    assert await clusters.until(["2", "2", "2"]) < 120
    await asyncio.sleep(120)
    for service in clusters.services.values():
        assert service.status.condition is Condition.SYNCED
    for service, count in zip(clusters.services.values(), (0, 1, 1), strict=True):
        waits = [text for text in service.of(CommitWaits) if commit[:12] in text]
        assert len(waits) == count
    assert not eu1.of(CommitOverdue)


@pytest.mark.slow
async def test_at_rest_no_report_is_published_and_a_rollout_costs_few(clusters: Fleet, /) -> None:
    def pushes() -> dict[str, int]:
        return {name: len(rows) for name, rows in clusters.refs.pushes.items()}

    rest = pushes()
    await asyncio.sleep(6 * 3600)
    assert pushes() == rest
    clusters.branch.change("2")
    await clusters.until(["2", "2", "2"])
    await asyncio.sleep(3600)
    assert all(1 < more - rest[name] <= 8 for name, more in pushes().items()), pushes()


@pytest.mark.slow
async def test_a_failed_commit_never_continues_and_its_revert_is_applied_first(
    clusters: Fleet, /
) -> None:
    eu1 = clusters.services["eu-1"]
    bad = clusters.branch.change(BAD)
    await clusters.until([BAD, "1", "1"], minutes=2)
    await asyncio.sleep(2 * 3600)
    assert await clusters.images() == [BAD, "1", "1"]
    assert "waits for cluster staging: it failed: " in eu1.status.message
    # Neither does a later commit, until the cluster is well again; its message has no effect.
    clusters.branch.change(BAD, f"Back\n\nThis reverts commit {bad}.")
    await asyncio.sleep(3600)
    assert await clusters.images() == [BAD, "1", "1"]
    revert = clusters.branch.change("1")
    await clusters.until(["1", "1", "1"], minutes=2)
    await asyncio.sleep(60)
    assert eu1.status.applied == revert
    await asyncio.sleep(3600)
    assert eu1.status.condition is Condition.SYNCED


@pytest.mark.slow
async def test_a_revert_of_a_promoted_commit_does_not_soak(clusters: Fleet, /) -> None:
    commit = clusters.branch.change("2")
    await clusters.until(["2", "2", "2"])
    # The message of a revert, with another content.
    clusters.branch.change("3", f"Back\n\nGitops-Ds-Reverts: {commit}")
    await clusters.until(["3", "2", "2"])
    assert await clusters.until(["3", "3", "3"]) > 500
    # The content of a revert, with another message.
    clusters.branch.change("1", "An older image")
    assert await clusters.until(["1", "1", "1"]) < 60
    # A revert of the revert is a change, and waits.
    again = clusters.branch.id(clusters.branch.at)
    clusters.branch.change("3", f"Back\n\nThis reverts commit {again}.")
    await clusters.until(["3", "1", "1"])
    assert await clusters.until(["3", "3", "3"]) > 500


@pytest.mark.slow
async def test_commits_faster_than_the_soak_still_continue(clusters: Fleet, /) -> None:
    behind = []
    for number in range(2, 14):
        clusters.branch.change(str(number))
        await asyncio.sleep(180)
        images = [int(image) for image in await clusters.images()]
        assert images == sorted(images, reverse=True)
        behind.append(images[1])
    assert behind[-1] > 5
    await clusters.until(["13", "13", "13"])


async def test_a_person_releases_a_commit(clusters: Fleet, /) -> None:
    clusters.services["staging"].kill()
    commit = clusters.branch.change("2")
    await asyncio.sleep(600)
    assert await clusters.images() == ["1", "1", "1"]
    service = clusters.services["eu-1"]
    target = StateObject("gitops-ds", "fleet.eu-1", DeployerState())
    request = (service.cluster.client("gitops-ds"), target)
    now = service.cluster.server.now()
    assert not await service_requests.is_waiting(*request, "f" * 12, now)
    assert await service_requests.is_waiting(*request, commit[:12], now)
    body = await service_requests.release_waiting(*request, commit[:12])
    assert requests.parse(body).releases(commit)
    await clusters.until(["1", "2", "2"], minutes=5)
    assert not await service_requests.is_waiting(*request, commit[:12], now)
    # The next commit waits as before.
    clusters.branch.change("3")
    await asyncio.sleep(600)
    assert await clusters.images() == ["1", "2", "2"]


@pytest.mark.slow
async def test_a_service_that_is_away_holds_the_commit_and_alarms(clusters: Fleet, /) -> None:
    staging, eu1 = clusters.services["staging"], clusters.services["eu-1"]
    staging.kill()
    commit = clusters.branch.change("2")
    await asyncio.sleep(1.9 * 3600)
    assert not eu1.of(CommitOverdue)
    assert "its last report is" in eu1.status.message
    await asyncio.sleep(2.3 * 3600)
    (one, two) = eu1.of(CommitOverdue)
    assert f"commit {commit[:12]} is overdue after 2.0 h: waits for cluster staging" in one
    assert two != one
    assert await clusters.images() == ["1", "1", "1"]
    staging.start()
    await clusters.until(["2", "2", "2"])


@pytest.mark.slow
async def test_while_the_reports_cannot_be_read_the_last_commit_stays(clusters: Fleet, /) -> None:
    clusters.branch.change("2")
    await clusters.until(["2", "1", "1"], minutes=2)
    clusters.refs.away = True
    await asyncio.sleep(3600)
    assert await clusters.images() == ["2", "1", "1"]
    assert clusters.services["eu-1"].status.condition is Condition.UNREACHABLE
    assert len(clusters.services["staging"].of(ReportFailed)) == 1
    clusters.refs.away = False
    await clusters.until(["2", "2", "2"])


@pytest.mark.slow
async def test_a_cluster_that_may_not_publish_is_named_once(clusters: Fleet, /) -> None:
    staging = clusters.services["staging"]
    staging.kill()
    staging.push = False
    staging.start()
    clusters.branch.change("2")
    await asyncio.sleep(3600)
    assert await clusters.images() == ["2", "1", "1"]
    (text,) = staging.of(ReportFailed)
    assert "set repository.push" in text
    # The last one of the order needs no push.
    assert not clusters.services["eu-2"].of(ReportFailed)


async def test_a_forged_copy_and_garbage_let_nothing_go_on(clusters: Fleet, /) -> None:
    staging, eu1 = clusters.services["staging"], clusters.services["eu-1"]
    staging.kill()
    commit = clusters.branch.change("2")
    proof = ClusterReport(
        "lab",
        cluster_report.ClusterState.PROVED,
        1e12,
        proved=(cluster_report.ProvedCommit(commit, 0.0),),
    )
    for data, reason in (
        (cluster_report.encode(proof), "its report is that of cluster lab"),
        (b"{", "its report is not readable: "),
        (b"", "its report is not readable: "),
    ):
        clusters.refs.refs["staging"] = ReportRef("staging", CommitId("f" * 40), data)
        await asyncio.sleep(600)
        assert reason in eu1.status.message
        assert await clusters.images() == ["1", "1", "1"]


async def test_a_service_that_starts_again_continues_its_proofs(clusters: Fleet, /) -> None:
    staging = clusters.services["staging"]
    commit = clusters.branch.change("2")
    await clusters.until(["2", "1", "1"], minutes=2)
    await asyncio.sleep(300)
    staging.kill()
    await asyncio.sleep(60)
    staging.start()
    assert await clusters.until(["2", "2", "1"]) < 300
    rows = clusters.refs.pushes["staging"]
    proofs = {row.proved[-1] for row in rows if row.proved}
    assert len([proof for proof in proofs if proof.commit == commit]) == 1


@pytest.mark.slow
async def test_services_that_are_killed_at_any_instant_keep_the_order(clusters: Fleet, /) -> None:
    chance = random.Random(7)
    for number in range(2, 8):
        clusters.branch.change(str(number))
        for _ in range(4):
            await asyncio.sleep(chance.uniform(1, 240))
            service = chance.choice(list(clusters.services.values()))
            service.kill()
            await asyncio.sleep(chance.uniform(0, 60))
            service.start()
            images = [int(image) for image in await clusters.images()]
            assert images == sorted(images, reverse=True)
    await clusters.until(["7", "7", "7"])
