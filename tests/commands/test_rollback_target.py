"""`rollback` starts from the template that runs, not from a tip that is not applied."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from gitops_ds.cli.commits.git_commit import Proposal
from gitops_ds.cli.rollback import rollback_commit
from gitops_ds.cli.rollback.rollback_commit import RollbackOptions, RollbackResult
from gitops_ds.core import errors
from gitops_ds.core.decision import Observation
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.health import Health, HealthState
from gitops_ds.core.live import Revision
from gitops_ds.core.objects import CommitId, Key
from gitops_ds.core.rollouts import rollout_policy
from gitops_ds.core.rollouts.staged_rollout import (
    Halt,
    RolloutRecord,
    RolloutTarget,
    StageInputs,
    StagesDecision,
)
from gitops_ds.core.rollouts.template_cause import TemplateCause
from gitops_ds.core.sources.bundle import Manifest
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.core.values import replace
from gitops_ds.deploy.pipeline import prepare
from gitops_ds.deploy.pipeline.open_repository import RepositoryRef
from gitops_ds.kube.apimachinery import daemonsets, revisions
from gitops_ds.rollouts.causes import template_digests
from gitops_ds.rollouts.state import proofs
from gitops_ds.rollouts.views.staged_rollouts import StagedRollout
from gitops_ds.source.git import address
from gitops_ds.source.git.repository import Repository
from gitops_ds.status.agents import Agent
from tests.gitservers import Upstream
from tests.plan.world import daemonset

KEY = Key("apps", "DaemonSet", "default", "agent")
FILE = "agents/agent/ds.json"
Script = Callable[[Upstream, Repository], Awaitable[None]]


def body(tag: int) -> dict[str, Any]:
    made = daemonset("agent", f"example.com/agent:{tag}", "default")
    made["metadata"]["uid"] = "u"
    return made


def files(tag: int) -> dict[str, str | bytes | None]:
    return {"gitops-ds.yaml": "version: v1\n", FILE: json.dumps(body(tag), indent=2)}


def revision(tag: int) -> Revision:
    live = daemonsets.daemonset_of(body(tag))
    found = revisions.revision_of(revisions.new(live, tag))
    assert found is not None
    return found


def agent(*commits: str) -> Agent:
    """An agent that runs the last of these commits, whose images have their numbers as tags."""
    tags = range(1, len(commits) + 1)
    known = tuple(map(revision, tags))
    seen = Observation(0.0, daemonsets.daemonset_of(body(len(commits))), (), (), known)
    manifest = body(len(commits))
    source = template_digests.digest(_manifest(manifest))
    state = DeployerState(
        causes={KEY: TemplateCause(source, commits[-1])},
        commits={
            KEY: {
                proofs.identity(one.template): CommitId(commit)
                for one, commit in zip(known, commits, strict=True)
            }
        },
    )
    return Agent(seen, Health(HealthState.HEALTHY, ""), state)


def _manifest(made: dict[str, Any]) -> Manifest:
    tree = SourceTree(None, {PurePosixPath(FILE): json.dumps(made).encode()})
    return prepare.prepare(tree).bundle.manifests[KEY]


def play(script: Script, tmp_path: Path) -> None:
    async def main() -> None:
        upstream = Upstream(tmp_path / "fleet.git")
        where = address.parse(str(upstream.path), allow_local=True)
        async with Repository(where, tmp_path / "cache") as repository:
            await script(upstream, repository)

    asyncio.run(main())


async def roll_back(
    repository: Repository, seen: Agent, number: int | None = None
) -> RollbackResult:
    named = RepositoryRef(repository.address)
    options = RollbackOptions(number, None, proposal=Proposal(author="Ada <ada@example.com>"))
    return await rollback_commit.roll_back_in(repository, named, seen, options)


def test_a_rollback_states_what_it_restores(tmp_path: Path) -> None:
    async def script(upstream: Upstream, repository: Repository) -> None:
        commits = [upstream.commit(files(tag), f"Agent {tag}") for tag in (1, 2)]
        done = await roll_back(repository, agent(*commits))
        assert done.way.reverts == commits[1]
        assert str(done.restored) == (
            f"revision 1 (example.com/agent:1), commit {commits[0][:12]} by Ada <ada@example.com>"
        )

    play(script, tmp_path)


def test_a_tip_that_is_not_applied_is_not_rolled_back_by_guess(tmp_path: Path) -> None:
    async def script(upstream: Upstream, repository: Repository) -> None:
        commits = [upstream.commit(files(tag), f"Agent {tag}") for tag in (1, 2)]
        tip = upstream.commit(files(3), "Agent 3")
        seen = agent(*commits)
        with pytest.raises(errors.Refused, match=f"{tip[:12]} .*another template.*--to-revision"):
            await roll_back(repository, seen)
        done = await roll_back(repository, seen, 2)
        assert done.way.reverts == tip
        upstream.commit({"README.md": "words"}, "Words")
        upstream.commit(files(2), "Back")
        assert (await roll_back(repository, seen)).restored.revision == 1

    play(script, tmp_path)


def rolling(proven: str, target: str, halt: Halt | None = None) -> Agent:
    """An agent that runs the first image, while the second one rolls out or is halted."""
    seen, source = agent(proven), template_digests.digest(_manifest(body(2)))
    staged = RolloutTarget("h", body(2)["spec"]["template"], "r", "u", target, staged=True)
    policy = rollout_policy.decode({"stages": ["canary", "rest"]})
    record = RolloutRecord(halt=halt)
    decision = StagesDecision((), frozenset(), (), (), 0, 1, record)
    return replace(
        seen,
        state=replace(seen.state, causes={KEY: TemplateCause(source, target)}),
        rollout=StagedRollout(StageInputs(policy, staged, record), decision),
    )


@pytest.mark.parametrize("halt", [None, Halt(1.0, "canary", "it fails")], ids=["going", "halted"])
def test_a_rollback_during_a_rollout_restores_what_is_proven(
    tmp_path: Path, halt: Halt | None
) -> None:
    async def script(upstream: Upstream, repository: Repository) -> None:
        proven, target = (upstream.commit(files(tag), f"Agent {tag}") for tag in (1, 2))
        done = await roll_back(repository, rolling(proven, target, halt))
        assert (done.way.reverts, done.restored.revision) == (target, 1)
        assert done.restored.commit == proven
        tip = upstream.commit(files(3), "Agent 3")
        with pytest.raises(errors.Refused, match=f"{tip[:12]} .*another template.*--to-revision"):
            await roll_back(repository, rolling(proven, target, halt))

    play(script, tmp_path)


def test_without_an_earlier_revision_the_way_back_is_a_commit(tmp_path: Path) -> None:
    """As with `revisionHistoryLimit: 0`."""

    async def script(upstream: Upstream, repository: Repository) -> None:
        first = upstream.commit(files(1), "Agent 1")
        second = upstream.commit(files(2), "Agent 2")
        seen = agent(first, second)
        seen = replace(seen, seen=replace(seen.seen, revisions=seen.seen.revisions[1:]))
        with pytest.raises(errors.UsageError, match=r"no earlier revision .*--to-commit"):
            await roll_back(repository, seen)
        named = RepositoryRef(repository.address)
        options = RollbackOptions(None, first, proposal=Proposal(author="Ada <ada@example.com>"))
        done = await rollback_commit.roll_back_in(repository, named, seen, options)
        assert done.way.reverts == second

    play(script, tmp_path)
