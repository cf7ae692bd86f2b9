"""Whether the tip of a branch brings only manifests back that the cluster had before."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

import pytest

from gitops_ds.core import errors
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.objects import CommitId, Key
from gitops_ds.deploy.pipeline import prepare
from gitops_ds.deploy.pipeline.prepare import Prepared
from gitops_ds.deploy.wave_gate import EarlierContent
from tests.deploy.test_loop import AGENT
from tests.plan import world

DAEMONSET, CONFIG = AGENT.split("---\n")
EARLIER, APPLIED, TIP = (CommitId(digit * 40) for digit in "123")
STATE = DeployerState(
    last_good=APPLIED,
    revisions={Key("apps", "DaemonSet", "default", "agent"): {1: EARLIER, 2: APPLIED}},
)
Files = Mapping[str, str]


def files(agent: int, config: int = 1, other: int = 1, policy: str = "") -> Files:
    """A repository with two agents; each number is a version of one file."""
    found = {
        "agents/agent/agent-ds.yaml": DAEMONSET.format(tag=agent),
        "agents/agent/config.yaml": CONFIG.format().replace("info", f"level-{config}"),
        "agents/other/other-ds.yaml": DAEMONSET.replace("agent", "other").format(tag=other),
        "clusters/main.yaml": "{}\n",
        "gitops-ds.yaml": "version: v1\nname: fleet\n",
    }
    return found | ({"agents/agent/rollout.yaml": policy} if policy else {})


class Repository:
    """The three commits of a repository, and the number of those that were rendered."""

    def __init__(self, earlier: Files, applied: Files, tip: Files) -> None:
        self.commits = {EARLIER: earlier, APPLIED: applied, TIP: tip}
        self.rendered = 0
        self.error: errors.SourceError | None = None

    async def find(
        self, since: CommitId, tip: CommitId, among: Collection[CommitId]
    ) -> CommitId | None:
        """As if the files were those of the earlier commit."""
        assert (since, tip, set(among)) == (APPLIED, TIP, {EARLIER, APPLIED})
        return EARLIER

    async def prepared(self, commit: CommitId) -> Prepared:
        self.rendered += 1
        if self.error is not None:
            raise self.error
        return prepare.prepare(world.snapshot(self.commits[commit]), cluster="main")


def is_earlier(earlier: Files, applied: Files, tip: Files) -> bool:
    repository = Repository(earlier, applied, tip)
    content = EarlierContent(repository.find, repository.prepared)
    return asyncio.run(content.has(TIP, STATE))


def test_all_manifests_of_an_agent_are_those_of_one_commit() -> None:
    assert is_earlier(files(1), files(2), files(1))
    # Another agent has changed since, and stays as it is applied.
    assert is_earlier(files(1), files(2, other=2), files(1, other=2))
    # The files of two commits, which were never applied together.
    assert not is_earlier(files(1), files(2, config=2), files(1, config=2))
    assert not is_earlier(files(1), files(2), files(3))
    assert not is_earlier(files(1), files(2), files(1, other=2))
    without = {name: text for name, text in files(2).items() if "agents/agent/" not in name}
    assert not is_earlier(files(1), files(2), without)
    assert is_earlier(without, files(2), without)
    assert is_earlier(files(1), without, files(1))


def test_a_policy_is_content_too() -> None:
    policy = "stages: [canary, rest]\n"
    assert is_earlier(files(1, policy=policy), files(2), files(1, policy=policy))
    assert not is_earlier(files(1), files(2), files(1, policy=policy))


async def test_a_commit_is_compared_once() -> None:
    repository = Repository(files(1), files(2), files(1))
    content = EarlierContent(repository.find, repository.prepared)
    for _ in range(3):
        assert await content.has(TIP, STATE)
    assert repository.rendered == 3
    assert not await content.has(TIP, DeployerState())


async def test_a_commit_that_cannot_be_rendered_is_not_a_revert() -> None:
    repository = Repository(files(1), files(2), files(1))
    content = EarlierContent(repository.find, repository.prepared)
    repository.error = errors.SourceUnreachable("no answer")
    with pytest.raises(errors.SourceUnreachable):
        await content.has(TIP, STATE)
    repository.error = errors.CommitTooHeavy("too heavy")
    assert not await content.has(TIP, STATE)
