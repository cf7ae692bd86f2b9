"""The stage of the demo: a simulated cluster, a Git repository, the deployer and the controller."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib import resources
from pathlib import Path

import msgspec

from gitops_ds.controller.controller import Controller
from gitops_ds.core.decision import Powers
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.events.base import Event
from gitops_ds.core.events.deployer import Reconciled
from gitops_ds.core.objects import CommitId, short
from gitops_ds.core.required_in_git import RequiredInGit
from gitops_ds.core.rollouts.template_cause import RenderedCommit
from gitops_ds.core.sources.source_status import SourceStatus
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.core.startup_taints import OWN, StartupTaintPolicy
from gitops_ds.deploy import loop as deployer_loop
from gitops_ds.deploy import revision_selector, state_store
from gitops_ds.deploy.cause_finder import CauseFinder, CommitSource
from gitops_ds.deploy.pipeline import open_repository, prepare
from gitops_ds.deploy.pipeline.prepare import Prepared
from gitops_ds.deploy.target import DeployTarget
from gitops_ds.ownership.options import ApplyOptions
from gitops_ds.rollouts.causes import template_digests
from gitops_ds.source.git import address, local_worktree, revision
from gitops_ds.source.git.repository import Repository
from gitops_ds.startup_taints import required_agents
from gitops_ds.startup_taints.startup_taints import GitInputs
from gitops_ds.status.agents import Agent
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import Behaviour, NodeSpec, PodFault, Trouble

CLUSTER = "dev-1"
AUTHOR = "Dana Demo <dana@example.com>"
ZONE = "topology.kubernetes.io/zone"
STAGED = "fluentd-elasticsearch"
# Nodes that join with the startup taint wait for that agent.
TOLERATION = f"""\
- target: {{kind: DaemonSet, name: {STAGED}}}
  patch:
    - op: add
      path: /spec/template/spec/tolerations/-
      value: {{key: {OWN.key}, operator: Exists, effect: {OWN.effect}}}
"""
POLICY = """\
stages:
  - {name: canary, nodes: {count: 1}, soak: 30s}
  - {name: rest, soak: 10s}
limits: {atRisk: {cluster: 40%}}
onFailure: {revert: {after: 30s, how: commit}}
"""


class DemoStage(msgspec.Struct, frozen=True):
    """The environment of the scenes. `say` prints a line, `show` shows the agent of the scene."""

    cluster: simulator.SimulatedCluster
    repository: Repository
    folder: Path
    loop: deployer_loop.Loop
    controller: Controller
    events: list[Event]
    say: Callable[[str], None]
    show: Callable[[Agent, float], None]


@asynccontextmanager
async def open_stage(
    folder: Path, count: int, say: Callable[[str], None], show_agent: Callable[[Agent, float], None]
) -> AsyncIterator[DemoStage]:
    """The stage with `count` nodes and a repository in `folder`; its parts run in the context."""
    work = folder / "repository"
    with resources.as_file(resources.files("gitops_ds") / "examples-repo") as example:
        shutil.copytree(example, work)
    folder_of_agent = work / "agents" / STAGED
    (folder_of_agent / "rollout.yaml").write_text(POLICY)
    (folder_of_agent / "agent.yaml").write_text("requiredForWork: true\n")
    (folder_of_agent / "patches").mkdir()
    (folder_of_agent / "patches" / f"{CLUSTER}.yaml").write_text(TOLERATION)
    first = local_worktree.begin(work, "Agents for every node", AUTHOR)
    say(
        f"a Git repository in {work}: commit {short(first)} with "
        f"{sum(1 for f in work.rglob('*.yaml'))} YAML files"
    )
    behaviour = Behaviour(faults=(PodFault("*:broken*", Trouble.NEVER_PULLED),), jitter=0.2)
    async with (
        simulator.SimulatedCluster(behaviour) as cluster,
        Repository(address.parse(str(work), allow_local=True), folder / "cache") as repository,
    ):
        cluster.add_nodes(
            NodeSpec(f"node-{number}", {"pool": "general", ZONE: f"zone-{'abc'[number % 3]}"})
            for number in range(1, count + 1)
        )
        events: list[Event] = []
        loop = _loop(cluster, repository, events)
        controller = Controller(
            cluster.client(),
            Powers.FULL,
            events.append,
            clock=cluster.server.now,
            chance=random.Random(1).random,
        )
        controller.startup_taints.enable(StartupTaintPolicy(), _git_inputs(loop))
        stage = DemoStage(cluster, repository, work, loop, controller, events, say, show_agent)
        async with asyncio.TaskGroup() as group:
            group.create_task(controller.run())
            group.create_task(loop.run())
            reverts = group.create_task(_reverts(stage))
            yield stage
            loop.stop()
            controller.stop()
            reverts.cancel()


def _git_inputs(loop: deployer_loop.Loop) -> GitInputs:
    """The agents that the repository requires."""

    def state() -> DeployerState:
        return loop.deployer_state or DeployerState()

    def required() -> Sequence[RequiredInGit]:
        wanted = None if loop.bundle is None else required_agents.wanted_by(loop.bundle)
        return tuple(required_agents.required_by(state(), wanted, followed=True))

    return GitInputs(lambda: state().last_attempted is not None, required)


async def _reverts(stage: DemoStage) -> None:
    """Writes the reverts of halted rollouts, as the service does."""
    from gitops_ds.service.rollouts.repository_context import RepositoryContext
    from gitops_ds.service.rollouts.revert_writer import RevertWriter
    from gitops_ds.service.settings.repository import RepositorySettings

    writer = RevertWriter(
        RepositoryContext(
            repository=stage.repository,
            settings=RepositorySettings(url=str(stage.folder), branch="main", push=True),
            emit=stage.events.append,
            clock=stage.cluster.server.now,
            chance=random.Random(3).random,
            stopped_rollouts=lambda: stage.loop.stopped_rollouts,
        ),
        partial(prepared, stage.repository),
        _causes(stage.repository),
        stage.loop.request,
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(writer.run())
        while True:
            writer.wake()
            await asyncio.sleep(1.0)


_prepare = partial(prepare.prepare, cluster=CLUSTER)


async def prepared(repository: Repository, commit: CommitId) -> Prepared:
    """A commit, rendered and checked."""
    return _prepare(await open_repository.snapshot_of(repository, commit, ""))


def _causes(repository: Repository) -> CauseFinder:
    async def render(commits: Sequence[CommitId]) -> Mapping[CommitId, RenderedCommit]:
        return {
            commit: template_digests.rendered((await prepared(repository, commit)).bundle)
            for commit in commits
        }

    return CauseFinder(CommitSource(repository.line, render))


def _loop(
    cluster: simulator.SimulatedCluster, repository: Repository, events: list[Event]
) -> deployer_loop.Loop:
    async def snapshot(commit: CommitId) -> SourceTree:
        return await open_repository.snapshot_of(repository, commit, "")

    def tip() -> Awaitable[CommitId]:
        return repository.tip(revision.Branch("main"))

    place = DeployTarget(
        cluster.client(),
        "gitops-ds",
        state_store.identity("node-agents", "", "", CLUSTER),
        repository.address.display,
    )
    source = revision_selector.RevisionSource(
        tip,
        snapshot,
        repository.movement,
        revision_selector.prepare_directly(_prepare),
        branch=lambda: "main",
        causes=_causes(repository),
    )
    timing = deployer_loop.LoopTiming(5.0, cluster.server.now, random.Random(2).random)
    return deployer_loop.Loop(source, place, ApplyOptions(patience=0.0), events.append, timing)


@asynccontextmanager
async def served_page(stage: DemoStage) -> AsyncIterator[str]:
    """Serves the page on a free local port; returns its link."""
    from gitops_ds.service import page_view
    from gitops_ds.service.settings.listen import PageSettings
    from gitops_ds.service.web import server
    from gitops_ds.status.tracker import StatusTracker

    states: dict[str, DeployerState] = {}
    loop = stage.loop

    def sources() -> dict[str, SourceStatus]:
        return {loop.status.id: loop.status} if loop.status is not None else {}

    def followed() -> list[page_view.RepositoryView]:
        pools = tuple(loop.bundle.cluster.pools) if loop.bundle is not None else ()
        repository = page_view.RepositoryView(loop.manifests, stage.repository, pools, loop.status)
        return [repository]

    clock = stage.cluster.server.now
    tracker = StatusTracker(stage.controller.observer, lambda: states, clock, sources=sources)
    shown = page_view.Shown(CLUSTER, tracker, followed, clock)

    async def remember() -> None:
        handled = 0
        while True:
            for event in stage.events[handled:]:
                if isinstance(event, Reconciled):
                    states[stage.loop.owner] = await state_store.load(
                        stage.cluster, "gitops-ds", stage.loop.owner
                    )
                tracker.handle(event)
                shown.handle(event)
            handled = len(stage.events)
            await asyncio.sleep(1.0)

    runner = await server.serve("127.0.0.1:0", page_view.page(shown, PageSettings(access="open")))
    link = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    stage.say(f"the page: {link}")
    tasks = [asyncio.create_task(work) for work in (remember(), tracker.run())]
    try:
        async with shown.followed():
            yield link
    finally:
        for task in tasks:
            task.cancel()
        await runner.cleanup()
