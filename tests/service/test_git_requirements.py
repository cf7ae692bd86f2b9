"""The required agents in Git, as the controller gets them from the deployers and the states."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from gitops_ds.core import errors, names
from gitops_ds.core.deployer_state import TEMPLATES, DeployerState
from gitops_ds.core.objects import CommitId, Digest, Key
from gitops_ds.core.sources.bundle import Bundle, ClusterFacts, Manifest, Origin, Pointer
from gitops_ds.core.values import replace
from gitops_ds.service.git_requirements import READ_EVERY, GitRequirements
from gitops_ds.service.runnable import DeployerPart
from gitops_ds.startup_taints import required_agents
from gitops_ds.testing.simulator import virtual_time
from tests.plan.world import daemonset

COMMIT = CommitId("a" * 40)


@dataclass
class Loop:
    bundle: Bundle | None = None
    deployer_state: DeployerState | None = None
    owner: str = "own"


@dataclass
class Deployer:
    loop: Loop | None = None
    knows_required: bool = False
    unready: str = ""
    requires_agents: bool = True


def body(name: str, required: str = "true", image: str = "agent:1") -> dict[str, Any]:
    manifest: dict[str, Any] = daemonset(name, image, "agents")
    manifest["metadata"]["annotations"] = {names.REQUIRED_FOR_WORK: required}
    return manifest


def key(name: str) -> Key:
    return Key("apps", "DaemonSet", "agents", name)


def bundle(*bodies: dict[str, Any]) -> Bundle:
    origin = Origin(Pointer("a.yaml", 0, ()))
    manifests = {
        (at := key(one["metadata"]["name"])): Manifest(at, one, Digest(""), origin)
        for one in bodies
    }
    return Bundle(COMMIT, ClusterFacts("alpha"), manifests)


def state(*bodies: dict[str, Any], repository: str = "git") -> DeployerState:
    required = {key(one["metadata"]["name"]): required_agents.record_of(one) for one in bodies}
    return DeployerState(repository=repository, last_attempted=COMMIT, required=required)


@dataclass
class Stored:
    """The states in the namespace; None: they cannot be read."""

    states: Mapping[str, DeployerState] | None = field(default_factory=dict)
    reads: int = 0

    async def load(self) -> Mapping[str, DeployerState]:
        self.reads += 1
        if self.states is None:
            raise errors.Forbidden("configmaps is forbidden")
        return self.states


def requirements(*deployers: Deployer, stored: Stored | None = None) -> GitRequirements:
    """After the first read of the states."""
    stored = stored or Stored()
    git = GitRequirements(lambda: cast("list[DeployerPart]", list(deployers)), stored.load)

    async def read() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):
                await git.follow(lambda: None)

    asyncio.run(read())
    return git


def required(git: GitRequirements) -> list[str]:
    return [one.key.name for one in git.required()]


def test_every_repository_must_have_been_applied_once() -> None:
    assert not requirements(Deployer(knows_required=True), Deployer()).applied()
    assert requirements(Deployer(knows_required=True)).applied()


def test_a_repository_without_the_right_to_let_nodes_wait_delays_and_requires_nothing() -> None:
    other = Deployer(
        Loop(bundle(body("b")), owner="other"), unready="refused", requires_agents=False
    )
    own = Deployer(Loop(bundle(body("a"))), knows_required=True)
    stored = Stored({"other": state(body("b"))})
    assert requirements(own, other, stored=stored).applied()
    assert required(requirements(own, other, stored=stored)) == ["a"]


def test_a_service_without_repositories_waits_for_the_first_state() -> None:
    assert not requirements().applied()
    assert not requirements(stored=Stored({"a": DeployerState()})).applied()
    git = requirements(stored=Stored({"a": state(body("a"))}))
    assert git.applied()
    assert required(git) == ["a"]


def test_a_state_of_an_earlier_version_knows_no_required_agents() -> None:
    earlier = DeployerState(last_attempted=COMMIT, required=None)
    assert not requirements(stored=Stored({"a": earlier})).applied()
    assert requirements(stored=Stored({"a": replace(earlier, required={})})).applied()


class Part(DeployerPart):
    """The part of a service with a loop in this state."""

    unready = ""

    def __init__(self, state: DeployerState | None, of: Bundle | None) -> None:
        self.loop = cast("Any", Loop(of, state))

    async def run(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError


def test_the_required_agents_of_an_earlier_version_are_those_of_the_commit() -> None:
    earlier = DeployerState(last_attempted=COMMIT, required=None)
    assert not Part(earlier, None).knows_required
    assert Part(earlier, bundle()).knows_required
    assert Part(replace(earlier, required={}), None).knows_required
    assert not Part(DeployerState(), bundle()).knows_required
    assert not Part(None, bundle()).knows_required


def test_no_node_gets_work_before_the_states_are_read() -> None:
    assert not requirements(Deployer(knows_required=True), stored=Stored(None)).applied()


def test_after_a_restart_the_commit_must_be_read_again_if_git_can_be_reached() -> None:
    unread = Loop()
    reads = "first reconciliation is incomplete"
    assert not requirements(Deployer(None, knows_required=True, unready=reads)).applied()
    assert not requirements(Deployer(unread, knows_required=True, unready=reads)).applied()
    assert requirements(Deployer(unread, knows_required=True)).applied()
    assert requirements(Deployer(None, knows_required=True)).applied()
    assert requirements(Deployer(Loop(bundle()), knows_required=True, unready=reads)).applied()


def test_the_required_daemonsets_of_all_repositories_are_required() -> None:
    one = Loop(bundle(body("a"), body("b", "false")))
    other = Loop(bundle(body("c")), owner="other")
    git = requirements(Deployer(one), Deployer(), Deployer(other))
    assert sorted(required(git)) == ["a", "c"]
    assert list(map(id, git.required())) == list(map(id, git.required()))
    one.bundle = bundle(body("d"))
    assert sorted(required(git)) == ["c", "d"]


def test_while_git_cannot_be_read_the_stored_state_requires_the_agents() -> None:
    """Of a loop without a commit, and of a repository whose owner is not known yet."""
    for deployer in (Deployer(Loop(owner="own")), Deployer()):
        (one,) = requirements(deployer, stored=Stored({"own": state(body("a"))})).required()
        assert (one.wanted, one.applied) == (None, required_agents.record_of(body("a")))
        assert one.followed is (deployer.loop is not None)


def test_a_commit_that_no_longer_requires_an_agent_counts_before_it_is_applied() -> None:
    loop = Loop(bundle(body("a", "false")), state(body("a")))
    assert required(requirements(Deployer(loop))) == []


def test_a_template_in_the_cluster_requires_no_agent() -> None:
    """Who may write ConfigMaps in a namespace would keep all nodes from work."""
    templates = Deployer(Loop(bundle(body("a")), owner="templates"), requires_agents=False)
    stored = Stored({"templates": state(body("a"), repository=TEMPLATES)})
    assert required(requirements(templates, stored=stored)) == []


def test_the_states_are_read_again_and_only_changes_wake() -> None:
    stored, woken = Stored({"a": state(body("a"))}), list[int]()
    git = GitRequirements(tuple, stored.load)

    async def scene() -> None:
        task = asyncio.create_task(git.follow(lambda: woken.append(stored.reads)))
        await asyncio.sleep(2.5 * READ_EVERY)
        stored.states = None
        await asyncio.sleep(READ_EVERY)
        assert required(git) == ["a"]
        stored.states = {"a": state(body("b"))}
        await asyncio.sleep(READ_EVERY)
        assert required(git) == ["b"]
        task.cancel()

    virtual_time.run(scene())
    assert woken == [1, 5]
