"""Every surface names the commit that gave a template, however many commits came in one poll."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import pytest

from gitops_ds.cli.history import revision_history
from gitops_ds.cli.requests import held_rollouts, service_requests
from gitops_ds.cli.trace import traced_pods
from gitops_ds.cli.wait import by_health
from gitops_ds.cli.wait.by_health import WaitOptions
from gitops_ds.core import errors, names
from gitops_ds.core.decision import Powers
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.events.deployer import Reconciled
from gitops_ds.core.objects import DAEMONSET, CommitId
from gitops_ds.core.skip_reasons import DriftPolicy, SkipReason
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.core.values import replace
from gitops_ds.deploy import state_store
from gitops_ds.ownership.options import ApplyOptions
from gitops_ds.status import agent_json, agent_lists
from gitops_ds.status import agents as fleet_agents
from gitops_ds.status.agents import Agent
from gitops_ds.testing import simulator
from gitops_ds.testing.simulator import NodeSpec, PodFault, Trouble, virtual_time
from tests.deploy.rollout_scene import FileHistory, Scene, spoil
from tests.plan.world import daemonset
from tests.simulator.setup import KEY

Files = Mapping[str, str | None]
POLICY = json.dumps({"stages": [{"name": "canary", "nodes": {"count": 1}, "soak": "30s"}, "rest"]})
FIRST = "agents/agent/ds.json"


def of(name: str, tag: int, **more: Any) -> str:
    body = daemonset(name, f"example.com/{name}:{tag}", "default")
    return json.dumps({**body, "spec": {**body["spec"], **more}})


BASE: Files = {
    "gitops-ds.yaml": "version: v1\n",
    "clusters/main.yaml": "environment: prod\n",
    "environments/prod.yaml": "{}\n",
    FIRST: of("agent", 1),
    "agents/beside/ds.json": of("beside", 1),
}


KUSTOMIZED = ("ds.json", "kustomization.yaml")
KUSTOMIZE: Files = {
    **BASE,
    FIRST: None,
    "agents/beside/ds.json": None,
    "base/ds.json": of("agent", 1),
    "agents/agent/kustomization.yaml": "resources: [../../base]\n",
}
ONE_TAG = {"properties": {"tag": {"type": "integer", "default": 1}}}
SCHEMA = json.dumps({"type": "object", "additionalProperties": False, **ONE_TAG})
POOLS = "environment: prod\npools: {gpu: {match: [{key: g, in: [x]}]}}\n"


def variants(gpu: int, default: int) -> Files:
    values = {"gpu": {"nodes": {"pool": ["gpu"]}, "values": {"tag": gpu}}}
    values["default"] = {"values": {"tag": default}}
    text = json.dumps({"variants": [{"name": name, **one} for name, one in values.items()]})
    return {"agents/agent/variants.yaml": text}


PARAMETERS: Files = {
    **BASE,
    FIRST: of("agent", 1).replace("agent:1", "agent:${tag}"),
    "agents/agent/params.schema.json": SCHEMA,
}
VARIANTS: Files = {**PARAMETERS, "clusters/main.yaml": POOLS, **variants(1, 1)}


class Folder(FileHistory):
    """A repository of files; each commit changes some, or removes those with None."""

    def change(self, files: Files) -> CommitId:
        before = json.loads(self.commits[self.at]) if self.commits else {}
        after = {name: text for name, text in {**before, **files}.items() if text is not None}
        return self.push(json.dumps(after))

    def files(self, text: str) -> dict[str, str]:
        found: dict[str, str] = json.loads(text)
        return found

    def subject(self, commit: CommitId) -> str:
        return f"Change {self.index(commit)}"

    def tree(self, commit: CommitId) -> SourceTree:
        """As kustomize builds the kustomization of KUSTOMIZE."""
        tree = super().tree(commit)
        if (base := tree.files.get(PurePosixPath("base/ds.json"))) is None:
            return tree
        read = frozenset(file for file in tree.files if file.name in KUSTOMIZED)
        return replace(tree, expanded={PurePosixPath("agents/agent"): base}, consumed=read)


def play(
    script: Callable[[Scene, Folder], Awaitable[None]],
    policy: str = POLICY,
    base: Files = BASE,
    **options: Any,
) -> None:
    async def main() -> None:
        async with simulator.SimulatedCluster() as cluster:
            cluster.add_nodes(NodeSpec(f"node-{n}") for n in range(3))
            history = Folder()
            history.change({**base, **({"agents/agent/rollout.yaml": policy} if policy else {})})
            scene = Scene(cluster, history, Powers.PACE)
            scene.options = ApplyOptions(patience=0.0, **options)
            scene.start()
            await asyncio.sleep(120)
            await script(scene, history)
            scene.check()
            scene.kill()

    virtual_time.run(main())


async def agent_of(scene: Scene, name: str = "agent") -> Agent:
    now = scene.cluster.server.now()
    agents = await agent_lists.list_agents(scene.cluster, "gitops-ds", now)
    return fleet_agents.find_agent(agents, name, "default")


async def surfaces(scene: Scene, *, returns: bool = False) -> dict[str, Any]:
    """The commit of the agent's newest template, as each surface shows it."""
    agent = await agent_of(scene)
    state = await state_store.load(scene.cluster, "gitops-ds", "test")
    body = await scene.cluster.get(DAEMONSET, "default", "agent")
    newest = agent.target or agent.current
    assert newest is not None
    shown = {
        "annotation": body["metadata"]["annotations"][names.COMMIT],
        "state": state.causes[agent.key].commit,
        "history": agent.commit_of(newest),
        "get": fleet_agents.commit_of(agent),
        "json": agent_json.as_json(agent)["commit"],
    }
    if agent.rollout is not None:
        shown["status"] = agent.rollout.target.commit
        shown["revision"] = names_commit(newest.raw["metadata"]["annotations"])
    on_newest = [pod for pod in agent.seen.pods if pod.hash == newest.hash]
    if on_newest:
        entries = agent_json.nodes(agent)
        pods = {pod.name for pod in on_newest}
        (shown["trace"],) = {entry["commit"] for entry in entries if entry["pod"] in pods}
    events = [event for event in scene.events if getattr(event, "daemonset", None) == agent.key]
    commits = [commit for event in events if (commit := getattr(event, "commit", ""))]
    if commits and not returns:  # a return has no event of its own
        shown["events"] = commits[-1]
    return shown


def names_commit(annotations: Mapping[str, str]) -> str:
    return annotations[names.COMMIT]


@dataclass(frozen=True)
class CauseScene:
    """Changes that come in polls, and the number of the one that gave the template of the agent,
    the first one after BASE is 1.
    """

    polls: tuple[tuple[Files, ...], ...]
    cause: int
    commits: tuple[int, ...] = ()
    renders: int = 0
    down: bool = field(default=False)
    base: Files = field(default_factory=lambda: BASE)
    returns: bool = False


BESIDE: Files = {"agents/beside/ds.json": of("beside", 2)}
POOL: Files = {"clusters/main.yaml": "environment: prod\npools: {gpu: {match: [{key: g}]}}\n"}
PROD = "environments/prod.yaml"
SCENES = {
    "one commit": CauseScene((({FIRST: of("agent", 2)},),), 1),
    "another agent later, one poll": CauseScene((({FIRST: of("agent", 2)}, BESIDE),), 1),
    "another agent before, one poll": CauseScene(((BESIDE, {FIRST: of("agent", 2)}),), 2),
    "two polls": CauseScene((({FIRST: of("agent", 2)},), (BESIDE,)), 1),
    "the cluster's file before": CauseScene(((POOL, {FIRST: of("agent", 2)}),), 2, renders=1),
    "the cluster's file later": CauseScene((({FIRST: of("agent", 2)}, POOL),), 1, renders=1),
    "both in one commit": CauseScene((({FIRST: of("agent", 2), **BESIDE},),), 1),
    "two changes of the agent": CauseScene(
        (({FIRST: of("agent", 3)}, {FIRST: of("agent", 2)}),), 2, (2, 1), renders=1
    ),
    "a revert of a revert": CauseScene(
        (tuple({FIRST: of("agent", tag)} for tag in (2, 1, 2)),), 3, renders=1
    ),
    "a revert in the next poll": CauseScene(
        (({FIRST: of("agent", 2)},), ({FIRST: of("agent", 1)},)), 2, returns=True
    ),
    "a shared environment": CauseScene(
        (
            (
                {PROD: "agents: {beside: {values: {tag: 2}}}\n"},
                {PROD: "agents: {beside: {values: {tag: 2}}, agent: {values: {tag: 2}}}\n"},
                {PROD: "agents: {agent: {values: {tag: 2}}}\n"},
            ),
        ),
        2,
        renders=2,
        base={
            **PARAMETERS,
            "agents/beside/ds.json": of("beside", 1).replace("beside:1", "beside:${tag}"),
            "agents/beside/params.schema.json": SCHEMA,
        },
    ),
    "a variant": CauseScene(
        ((variants(2, 1), variants(2, 2), variants(3, 2)),), 2, renders=2, base=VARIANTS
    ),
    "a kustomize base": CauseScene(
        (
            (
                {"base/README.md": "words"},
                {"base/ds.json": of("agent", 2)},
                {"agents/agent/kustomization.yaml": "# words\nresources: [../../base]\n"},
            ),
        ),
        2,
        renders=2,
        base=KUSTOMIZE,
    ),
    "a moved folder": CauseScene(
        (
            (
                {FIRST: of("agent", 2)},
                {FIRST: None, "agents/other/ds.json": of("agent", 2)},
            ),
        ),
        1,
        renders=1,
    ),
    "a field beside the template": CauseScene(
        (({FIRST: of("agent", 2)},), ({FIRST: of("agent", 2, minReadySeconds=7)},)), 1
    ),
    "a moved file": CauseScene(
        (({FIRST: of("agent", 2)}, {FIRST: None, "agents/agent/moved.json": of("agent", 2)}),),
        1,
        renders=1,
    ),
    "the service down in between": CauseScene(
        (({FIRST: of("agent", 2)}, BESIDE, POOL),), 1, renders=2, down=True
    ),
}


@pytest.mark.parametrize("policy", [POLICY, ""], ids=["staged", "unstaged"])
@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_every_surface_names_the_commit_that_gave_the_template(
    scene: CauseScene, policy: str
) -> None:
    async def script(world: Scene, history: Folder) -> None:
        if scene.down:
            world.kill()
        for poll in scene.polls:
            for files in poll:
                history.change(files)
            if scene.down:
                world.start()
            world.request()
            await asyncio.sleep(60)
        expected = history.id(scene.cause)
        shown = await surfaces(world, returns=scene.returns)
        assert set(shown.values()) == {expected}, shown
        state = await state_store.load(world.cluster, "gitops-ds", "test")
        cause = state.causes[(await agent_of(world)).key]
        assert cause.commits == tuple(map(history.id, scene.commits or (scene.cause,)))
        assert (cause.author, cause.subject) == (
            "Ann <ann@example.com>",
            f"Change {scene.cause}",
        )
        assert history.renders == scene.renders
        await asyncio.sleep(600)
        shown = await surfaces(world, returns=scene.returns)
        assert set(shown.values()) == {expected}, shown

    play(script, policy, scene.base)


def test_a_template_of_a_person_has_no_commit_and_its_correction_the_one_of_git() -> None:
    async def script(world: Scene, history: Folder) -> None:
        good = history.change({FIRST: of("agent", 2)})
        world.request()
        await asyncio.sleep(120)
        await edit(world)
        history.change(BESIDE)
        world.request()
        await asyncio.sleep(120)
        agent = await agent_of(world)
        assert agent.current is not None
        assert agent.commit_of(agent.current) == ""
        assert (fleet_agents.commit_of(agent), agent_json.as_json(agent)["commit"]) == ("", "")
        assert {node["commit"] for node in agent_json.nodes(agent)} == {""}
        entries = await revision_history.history(agent, None)
        assert [entry["commit"] for entry in entries][-2:] == [good, ""]
        options = WaitOptions("ds/agent", commit=good, seconds=10.0)
        with pytest.raises(errors.TimedOut, match="edited in the cluster"):
            await by_health.wait_for_rollout(world.cluster, "gitops-ds", options, lambda _: None)

        world.kill()
        world.options = ApplyOptions(patience=0.0, drift=DriftPolicy.CORRECT)
        world.start()
        await asyncio.sleep(120)
        agent = await agent_of(world)
        assert agent.current is not None
        assert agent.commit_of(agent.current) == fleet_agents.commit_of(agent) == good

    play(script, "", drift=DriftPolicy.REPORT)


async def edit(scene: Scene) -> None:
    """As `kubectl set image`."""
    container = {"name": "agent", "image": "evil.example.com/x:9"}
    spec = {"template": {"spec": {"containers": [container]}}}
    people = scene.cluster.client("kubectl-set")
    await people.patch(DAEMONSET, "default", "agent", {"spec": spec})


@pytest.mark.parametrize("policy", [POLICY, ""], ids=["staged", "unstaged"])
def test_the_revision_of_a_revert_has_its_commit_and_that_of_a_person_has_none(policy: str) -> None:
    async def script(world: Scene, history: Folder) -> None:
        async def shown() -> tuple[list[tuple[str, bool]], set[str], str]:
            """The commits of history, of trace and of get."""
            agent = await agent_of(world)
            entries = await revision_history.history(agent, None)
            pods = traced_pods.found([agent], "ds", "agent", "default")
            return (
                [(entry["commit"], entry["current"]) for entry in entries],
                {entry["commit"] for _, entry in pods},
                fleet_agents.commit_of(agent),
            )

        first = history.id(0)
        assert await shown() == ([(first, True)], {first}, first)
        commits = [first]
        for tag in (2, 1, 3, 2):
            commits.append(history.change({FIRST: of("agent", tag)}))
            world.request()
            await asyncio.sleep(600)
            last = commits[-1]
            entries, pods, get = await shown()
            assert (entries[-1], pods, get) == ((last, True), {last}, last)
        # the revisions of 1 and 2 have the commits that gave these templates last
        assert entries == [(commit, commit == last) for commit in commits[2:]]
        await edit(world)
        await asyncio.sleep(120)
        entries, pods, get = await shown()
        assert entries == [*((commit, False) for commit in commits[2:]), ("", True)]
        assert (pods, get) == ({last if policy else ""}, "")

    play(script, policy, drift=DriftPolicy.REPORT)


@pytest.mark.parametrize("number", [1, 2])
def test_a_hold_of_each_commit_of_the_template_holds_its_rollout_and_a_release_ends_it(
    number: int,
) -> None:
    async def script(world: Scene, history: Folder) -> None:
        for files in ({FIRST: of("agent", 3)}, {FIRST: of("agent", 2)}, BESIDE):
            history.change(files)
        world.request()
        await asyncio.sleep(20)
        now, held = world.cluster.server.now(), history.id(number)
        hold, release = held_rollouts.hold, held_rollouts.release
        other = await hold(world.cluster, "test", history.id(3), now)
        assert not other.held
        assert f"DaemonSet default/agent of {history.id(2)[:12]}" in other.words
        rollouts = await hold(world.cluster, "test", held, now)
        assert [str(key) for key in rollouts.held] == ["DaemonSet default/agent"]
        await asyncio.sleep(600)
        agent = await agent_of(world)
        assert agent.rollout is not None
        assert agent.hold is not None
        assert await release(world.cluster, "test", held)
        await asyncio.sleep(600)
        assert (await agent_of(world)).rollout is None

    play(script)


@pytest.mark.parametrize("policy", [POLICY, ""], ids=["staged", "unstaged"])
def test_a_template_on_hold_waits_under_later_commits_for_its_release(policy: str) -> None:
    async def script(world: Scene, history: Folder) -> None:
        first = history.change({FIRST: of("agent", 2)})
        target = service_requests.StateObject("gitops-ds", "test", DeployerState())
        await service_requests.hold(world.cluster, target, first, "too early")
        for files in ({}, BESIDE, {FIRST: of("agent", 3)}):
            last = history.change(files)
            world.request()
            await asyncio.sleep(120)
            assert await world.tag() == "1"
            agent = await agent_of(world)
            assert agent.rollout is None
            assert agent.state.last_attempted == last
        beside = (await agent_of(world, "beside")).seen.daemonset.template["spec"]["containers"]
        assert beside[0]["image"] == "example.com/beside:2"
        assert agent.state.causes[agent.key].commits == (last, first)
        ends = [event for event in world.events if isinstance(event, Reconciled)]
        skipped = [refusal for event in ends for refusal in event.refusals]
        assert {one.reason for one in skipped} == {SkipReason.HELD}
        assert all(one.message.endswith("applies it; its reason: too early") for one in skipped)
        await service_requests.release(world.cluster, target, first)
        await asyncio.sleep(600)
        assert await world.tag() == "3"
        assert set((await surfaces(world)).values()) == {last}

    play(script, policy)


def test_a_template_on_a_halted_one_is_of_the_commits_of_both() -> None:
    async def script(world: Scene, history: Folder) -> None:
        spoil(world, PodFault("*:2", Trouble.NEVER_PULLED), PodFault("*:3", Trouble.NEVER_PULLED))
        first = history.change({FIRST: of("agent", 2)})
        world.request()
        await asyncio.sleep(1500)
        assert world.loop is not None
        assert world.loop.stopped_rollouts is not None
        (halted,) = world.loop.stopped_rollouts.halted
        assert halted.commits == (first,)
        history.change(POOL)
        second = history.change({FIRST: of("agent", 3)})
        world.request()
        await asyncio.sleep(1500)
        (halted,) = world.loop.stopped_rollouts.halted
        assert (halted.commit, halted.commits) == (second, (second, first))

    play(script)


def test_a_template_is_compared_with_git_again_only_after_a_change_of_the_daemonset() -> None:
    known = "a" * 16  # the identity of another template

    async def script(scene: Scene, history: Folder) -> None:
        async def commits() -> Mapping[str, CommitId]:
            scene.request()
            await asyncio.sleep(60)
            state = await state_store.load(scene.cluster, "gitops-ds", "test")
            return state.commits[KEY]

        (commit,) = {*(await commits()).values()}
        state = await state_store.load(scene.cluster, "gitops-ds", "test")
        other = replace(state, commits={KEY: {known: commit}})
        await state_store.save(scene.cluster, "gitops-ds", "test", other)
        scene.kill()
        scene.start()
        assert await commits() == {known: commit}
        await scene.cluster.patch(DAEMONSET, "default", "agent", {"spec": {"minReadySeconds": 7}})
        found = await commits()
        assert set(found.values()) == {commit}
        assert found.keys() > {known}

    play(script, policy="")
