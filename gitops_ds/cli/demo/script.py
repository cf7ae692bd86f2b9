"""The scenes of the demo on the simulated cluster, with a real Git repository: commit, new node,
bad commits, revert, recovery.

Every printed value is read from the objects of the cluster or from Git; only the order of the
scenes is fixed.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from gitops_ds.cli.commits.git_commit import Proposal
from gitops_ds.cli.demo.stage import (
    AUTHOR,
    CLUSTER,
    STAGED,
    ZONE,
    DemoStage,
    open_stage,
    prepared,
    served_page,
)
from gitops_ds.cli.history import revision_history
from gitops_ds.cli.rollback import rollback_commit
from gitops_ds.core import errors
from gitops_ds.core.change import Change, Plan
from gitops_ds.core.events.base import Event
from gitops_ds.core.events.commits import CommitRejected
from gitops_ds.core.events.deployer import Planned, Reconciled
from gitops_ds.core.events.rollouts import RevertCommitted, RolloutHalted, StageOpened, StagePassed
from gitops_ds.core.events.startup_taints import StartupTaintsRemoved
from gitops_ds.core.health import HealthState
from gitops_ds.core.objects import CommitId, short
from gitops_ds.core.startup_taints import OWN
from gitops_ds.core.values import replace
from gitops_ds.deploy.pipeline import open_repository
from gitops_ds.deploy.pipeline.change_forecast import StagedForecasts
from gitops_ds.deploy.plan import printers
from gitops_ds.notify import log_lines
from gitops_ds.source.git import local_worktree
from gitops_ds.status import agent_lists
from gitops_ds.status import agents as fleet_agents
from gitops_ds.status.agents import Agent
from gitops_ds.testing.simulator import NodeSpec, virtual_time

STAR = STAGED
OTHER = "node-exporter"
E = TypeVar("E", bound=Event)
PATIENCE = 600.0  # seconds of the cluster's time that a scene may take


async def play(
    count: int,
    say: Callable[[str], None],
    show_agent: Callable[[Agent, float], None],
    *,
    page: bool = False,
) -> None:
    """Plays all scenes on `count` nodes. Raises TimedOut if the cluster does not reach an expected
    state.

    With `page`, the page is served until Ctrl-C.
    """
    with tempfile.TemporaryDirectory(prefix="gitops-ds-demo-") as temporary:
        async with (
            open_stage(Path(temporary), count, say, show_agent) as stage,
            contextlib.AsyncExitStack() as stack,
        ):
            link = await stack.enter_async_context(served_page(stage)) if page else ""
            for scene in (
                _every_node,
                _join_and_leave,
                _rollout,
                _broken_commit,
                _way_back,
                _stages,
                _bad_image,
            ):
                await scene(stage)
            if link:
                say(f"\nThe page stays at {link} until you press Ctrl-C")
                await asyncio.Event().wait()


def run(story: Coroutine[Any, Any, None], speed: float) -> None:
    """Runs `story` to its end with `speed` seconds of the cluster per real second."""
    virtual_time.run(story, speed)


async def _look(stage: DemoStage, name: str = STAR) -> tuple[Agent, ...]:
    """All agents; prints the agent of the scene."""
    now = stage.cluster.server.now()
    agents = await agent_lists.list_agents(stage.cluster, "gitops-ds", now)
    for agent in agents:
        if agent.key.name == name:
            stage.show(agent, now)
    return agents


async def _agent(stage: DemoStage, name: str, until: Callable[[Agent], bool], what: str) -> Agent:
    """The agent as soon as `until` is true for it."""

    def found(agents: tuple[Agent, ...]) -> bool:
        return any(agent.key.name == name and until(agent) for agent in agents)

    return fleet_agents.find_agent(await _fleet(stage, found, what, name), name, "")


async def _fleet(
    stage: DemoStage, until: Callable[[tuple[Agent, ...]], bool], what: str, name: str = STAR
) -> tuple[Agent, ...]:
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while True:
        agents = await _look(stage, name)
        if until(agents):
            return agents
        if asyncio.get_running_loop().time() > deadline:
            last = next(
                (text for event in reversed(stage.events) if (text := log_lines.line(event))),
                "the deployer logged nothing",
            )
            raise errors.TimedOut(
                f"the simulated cluster did not reach: {what}; last log line: {last}"
            )
        await asyncio.sleep(1.0)


def _healthy(agent: Agent) -> bool:
    return (
        agent.health.state is HealthState.HEALTHY
        and agent.counts.available == agent.counts.desired > 0
    )


async def _every_node(stage: DemoStage) -> None:
    stage.say("\nA commit becomes one pod on every node")
    stage.loop.request()

    def whole(agents: tuple[Agent, ...]) -> bool:
        """Agents that wait for others follow later; the last reconciliation skips nothing."""
        reconciliations = [event for event in stage.events if isinstance(event, Reconciled)]
        return (
            bool(reconciliations)
            and not reconciliations[-1].refusals
            and all(map(_all_there, agents))
        )

    agents = await _fleet(stage, whole, "every agent on every node")
    desired = sum(agent.counts.desired for agent in agents)
    nodes = len({node.name for node in agents[0].seen.nodes})
    stage.say(
        f"  {len(agents)} DaemonSets on {nodes} nodes: {desired} pods wanted, "
        f"{sum(a.counts.available for a in agents)} available"
    )
    _counters(stage, fleet_agents.find_agent(agents, STAR, ""))


def _all_there(agent: Agent) -> bool:
    return (
        agent.seen.daemonset.counts is not None
        and agent.counts.available == agent.counts.desired
        and not agent.health.nodes
    )


def _counters(stage: DemoStage, agent: Agent) -> None:
    counts = agent.counts
    stage.say(
        f"  {agent.key.name}: DESIRED {counts.desired}  CURRENT {counts.current}  READY "
        f"{counts.ready}  "
        f"UP-TO-DATE {counts.updated}  AVAILABLE {counts.available}  {agent.health.state}"
    )


async def _join_and_leave(stage: DemoStage) -> None:
    stage.say("\nA node joins, another leaves; no commit is involved")
    before = stage.cluster.server.now()
    labels = {"pool": "general", ZONE: "zone-b"}
    stage.cluster.add_nodes([NodeSpec("node-new", labels, taints=(OWN,))])
    agent = await _agent(
        stage, STAR, lambda a: _healthy(a) and _runs_on(a, "node-new"), "a pod on the new node"
    )
    stage.say(
        f"  node-new has its pod after {stage.cluster.server.now() - before:.0f} s: "
        f"{_pod_on(agent, 'node-new')}"
    )
    await _released(stage)
    stage.cluster.remove_node("node-1")
    agent = await _agent(
        stage,
        STAR,
        lambda a: _healthy(a) and not _runs_on(a, "node-1"),
        "no pod on the node that left",
    )
    stage.say(
        f"  node-1 is gone, and its pod with it: {agent.counts.desired} wanted, "
        f"{agent.counts.available} available"
    )


async def _released(stage: DemoStage) -> None:
    """The node joined with the startup taint, which the service removes."""
    event = await _event(stage, StartupTaintsRemoved, lambda event: event.node == "node-new")
    stage.say(f"  it gets work now: {event.kube_text()}")


def _runs_on(agent: Agent, node: str) -> bool:
    return any(pod.node == node for pod in agent.seen.pods)


def _pod_on(agent: Agent, node: str) -> str:
    return next(pod.name for pod in agent.seen.pods if pod.node == node)


async def _rollout(stage: DemoStage) -> None:
    stage.say(
        "\nA newer image: planned against the live ControllerRevisions, rolled out one node at a "
        "time"
    )
    commit = await _commit(stage, OTHER, (_tag(stage, OTHER), "v1.11.1"), "node-exporter 1.11.1")
    await _print_plan(stage, commit, OTHER)
    agent = await _agent(
        stage,
        OTHER,
        lambda a: _healthy(a) and a.commit_of(a.history[-1]) == commit,
        "the new image everywhere",
    )
    _counters(stage, agent)
    stage.say(f"  revision {_number(agent)} is commit {short(commit)}")


def _number(agent: Agent) -> int:
    return agent.current.number if agent.current else 0


def _tag(stage: DemoStage, name: str) -> str:
    """The tag of the agent's image in the file."""
    match = re.search(
        r"image: \S+:(\S+)", (stage.folder / "agents" / name / "daemonset.yaml").read_text()
    )
    return match[1] if match else ""


async def _commit(stage: DemoStage, name: str, change: tuple[str, str], subject: str) -> CommitId:
    old, new = change
    file = stage.folder / "agents" / name / "daemonset.yaml"
    file.write_bytes(file.read_bytes().replace(old.encode(), new.encode()))
    commit = local_worktree.commit(stage.folder, subject, AUTHOR)
    stage.say(f"  git commit {short(commit)} {subject!r}")
    stage.loop.request()
    return commit


async def _print_plan(
    stage: DemoStage, commit: CommitId, name: str, before: Sequence[Agent] = ()
) -> None:
    """Prints the plan that the deployer made for the commit, without its last lines; with the
    agents before it, also the stages of their rollouts.
    """

    def planned() -> Planned | None:
        return next(
            (
                r
                for r in stage.events
                if isinstance(r, Planned) and r.plan.commit == commit and r.plan.writes
            ),
            None,
        )

    await _fleet(stage, lambda _: planned() is not None, "a plan for the commit", name)
    result = planned()
    if result is not None:
        plan = replace(result.plan, changes=await _staged(stage, result.plan, before))
        for line in printers.as_text(plan).split("\n\n")[0].splitlines():
            stage.say(f"  {line}")


async def _staged(stage: DemoStage, plan: Plan, before: Sequence[Agent]) -> tuple[Change, ...]:
    """The changes of the plan, with the stages of rollouts."""
    if not before:
        return plan.changes
    assert plan.commit is not None
    bundle = (await prepared(stage.repository, plan.commit)).bundle
    bodies = {agent.key: agent.seen.daemonset.raw for agent in before}
    nodes = before[0].seen.nodes
    return tuple(StagedForecasts().over(plan.changes, bodies, bundle, nodes))


async def _broken_commit(stage: DemoStage) -> None:
    stage.say("\nA commit with a typo changes nothing")
    before = await _agent(stage, OTHER, _healthy, "a healthy agent")
    commit = await _commit(stage, OTHER, ("tolerations:", "tolerationz:"), "a typo")

    def rejected() -> CommitRejected | None:
        return next(
            (r for r in stage.events if isinstance(r, CommitRejected) and r.commit == commit), None
        )

    await _fleet(stage, lambda _: rejected() is not None, "the commit's rejection", OTHER)
    rejection = rejected()
    for finding in rejection.findings if rejection else ():
        stage.say(f"  {finding.place}: {finding.rule} {finding.message}")
    after = await _agent(stage, OTHER, _healthy, "a healthy agent")
    was, remains = before.seen.daemonset.generation, after.seen.daemonset.generation
    stage.say(
        f"  the DaemonSet was at generation {was} and is at generation {remains}, "
        f"{after.health.state}"
    )
    await _commit(stage, OTHER, ("tolerationz:", "tolerations:"), "the typo fixed")


async def _stages(stage: DemoStage) -> None:
    stage.say("\nA newer image in stages: a canary, then the rest")
    before = await _look(stage)
    commit = await _commit(stage, STAR, (_tag(stage, STAR), "v5.0.2"), "fluentd 5.0.2")
    await _print_plan(stage, commit, STAR, before)
    agent = await _agent(
        stage,
        STAR,
        lambda a: _healthy(a) and a.commit_of(a.history[-1]) == commit,
        "the new image everywhere",
    )
    for event in stage.events:
        if isinstance(event, StageOpened | StagePassed) and event.commit == commit:
            stage.say(f"  {event.kube_text()}")
    _counters(stage, agent)


async def _bad_image(stage: DemoStage) -> None:
    stage.say("\nA bad image: halted in the canary, and reverted in Git by the service")
    commit = await _commit(stage, STAR, (_tag(stage, STAR), "broken"), "fluentd 5.1.0")
    halted = await _event(stage, RolloutHalted, lambda event: event.commit == commit)
    stage.say(f"  {halted.kube_text()}")
    _counters(stage, fleet_agents.find_agent(await _look(stage), STAR, ""))
    reverted = await _event(stage, RevertCommitted, lambda event: event.commit == commit)
    stage.say(f"  {reverted.kube_text()}")
    _counters(stage, await _agent(stage, STAR, _healthy, "recovery"))
    moment = datetime.fromtimestamp(stage.cluster.server.now(), UTC)
    stage.say(f"  on the cluster's clock it is {fleet_agents.when(moment)}")


async def _event(stage: DemoStage, of: type[E], until: Callable[[E], bool]) -> E:
    """The first event of that kind for which `until` is true."""

    def found() -> E | None:
        return next(
            (event for event in stage.events if isinstance(event, of) and until(event)), None
        )

    await _fleet(stage, lambda _: found() is not None, of.__name__)
    event = found()
    assert event is not None
    return event


async def _way_back(stage: DemoStage) -> None:
    stage.say("\nThe way back is a revert commit, and gets a new, higher revision number")
    agent = await _agent(stage, OTHER, _healthy, "a healthy agent")
    good = agent.history[-2]
    named = open_repository.RepositoryRef(stage.repository.address, "", None)
    options = rollback_commit.RollbackOptions(
        good.number, None, cluster=CLUSTER, proposal=Proposal("main", push=True, author=AUTHOR)
    )
    stage.say(f"  gitops-ds rollback ds/{OTHER} --to-revision {good.number} --push")
    done = await rollback_commit.roll_back_in(stage.repository, named, agent, options)
    stage.say(f"  pushed {short(done.way.commit)}, which {done.way}")
    stage.loop.request()
    agent = await _agent(
        stage,
        OTHER,
        lambda a: _healthy(a) and a.commit_of(a.history[-1]) == done.way.commit,
        "recovery",
    )
    _counters(stage, agent)
    stage.say("\n  REVISION  COMMIT        NODES  CHANGE-CAUSE")
    for row in await revision_history.history(agent, stage.repository):
        mark = "*" if row["current"] else " "
        stage.say(
            f"  {row['revision']:>7}{mark}  {short(row['commit'])}  {row['nodes']:>5}  "
            f"{row['changeCause']}"
        )
    same = agent.history[-1].template == good.template
    stage.say(
        f"  revision {_number(agent)} {'is byte for byte' if same else 'is not'} the template "
        f"that revision {good.number} was"
    )
