"""Approvals of stages by approvers of the repository, in a rollout on the simulated cluster."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from gitops_ds.core import names
from gitops_ds.core.decision import Powers
from gitops_ds.core.events.rollouts import RolloutHeld, StageApproved
from gitops_ds.core.objects import CONTROLLER_REVISION, CommitId
from gitops_ds.core.sources.signatures import Trust, Unverified, Verified
from gitops_ds.ownership.options import ApplyOptions
from gitops_ds.rollouts.state import keys
from gitops_ds.service.rollouts.approval_writer import ApprovalWriter
from gitops_ds.service.rollouts.repository_context import RepositoryContext
from gitops_ds.service.settings.repository import (
    ApproverSettings,
    RepositorySettings,
    VerifySettings,
)
from gitops_ds.source.git.branch_history import ApprovalCommit, ChangedFiles
from gitops_ds.source.git.revision import RevisionSpec
from tests.deploy import rollout_scene
from tests.deploy.rollout_scene import POLICY, Scene

play = rollout_scene.play

APPROVED = POLICY.replace("name: rest,", "name: rest, approval: {from: [team-a]},")
OPTIONS = ApplyOptions(patience=0.0, approvers=frozenset({"team-a"}))


@dataclass
class Commits:
    """The approval commits of a branch; every one is signed with one key."""

    found: list[ApprovalCommit] = field(default_factory=list)
    looks: int = 0

    async def tip(self, revision: RevisionSpec) -> CommitId:
        self.looks += 1
        return CommitId("f" * 40)

    async def fetch(self, commit: CommitId) -> None:
        pass

    async def approval_commits(self, commit: CommitId, tip: CommitId) -> tuple[ApprovalCommit, ...]:
        return tuple(self.found)

    async def commits_that_brought(
        self, since: CommitId, commit: CommitId, limit: int, merge: ChangedFiles | None = None
    ) -> tuple[ChangedFiles, ...] | None:
        return None

    async def verify_kept(
        self, revision: RevisionSpec, commit: CommitId, trust: Trust
    ) -> Verified | Unverified:
        return Verified("ada@example.com", "SHA256:ada")


def writer(scene: Scene, commits: Commits, signers: str) -> ApprovalWriter:
    settings = RepositorySettings(
        url="https://git.example.com/a",
        branch="main",
        verify=VerifySettings(allowed_signers_file=signers),
        approvers={"team-a": ApproverSettings(keys=frozenset({"ada@example.com"}))},
    )
    return ApprovalWriter(
        RepositoryContext(
            repository=commits,
            settings=settings,
            emit=scene.events.append,
            clock=scene.cluster.server.now,
            chance=lambda: 0.0,
            stopped_rollouts=lambda: scene.loop.stopped_rollouts if scene.loop else None,
        ),
        scene.cluster.client("gitops-ds"),
        ledger=scene.ledger,
    )


def follow(scene: Scene, commits: Commits) -> None:
    """Starts a writer, which every reconciliation wakes."""
    found = writer(scene, commits, "/dev/null")

    async def wake() -> None:
        while True:
            await asyncio.sleep(5)
            found.wake()

    scene.tasks += [asyncio.ensure_future(found.run()), asyncio.ensure_future(wake())]


async def annotate(scene: Scene, **annotations: str) -> None:
    name = (await scene.daemonset())["metadata"]["annotations"][keys.TARGET]
    named = {f"{names.DOMAIN}/{key}": text for key, text in annotations.items()}
    patch = {"metadata": {"annotations": named}}
    await scene.cluster.patch(CONTROLLER_REVISION, "default", name, patch)


@pytest.mark.sampled
@pytest.mark.parametrize("powers", [Powers.PACE, Powers.FULL])
@pytest.mark.play(policy=APPROVED, options=OPTIONS)
async def test_a_signed_commit_opens_the_stage_of_its_rollout_and_no_annotation_does(
    scene: Scene, /, powers: Powers
) -> None:
    commits = Commits()
    follow(scene, commits)
    for tag in ("2", "3"):
        scene.push(tag)
        await asyncio.sleep(1200)
        hold = scene.decision.hold
        assert hold is not None
        assert hold.reason == "approval by team-a"
        await annotate(scene, approve="rest")
        await asyncio.sleep(300)
        assert len(scene.on(tag)) == 2, "the approval of a person with rights in the cluster"
        rollout = scene.observed()
        assert rollout is not None
        value = f"default/agent/rest {rollout.commit}"
        commits.found.insert(0, ApprovalCommit(CommitId("e" * 40), (value,)))
        await scene.until(lambda: scene.observed() is None, 20)
        assert len(scene.on(tag)) == 10
        looks = commits.looks
        await asyncio.sleep(1200)
        assert commits.looks == looks, "nothing waits"
    held = [event.hold for event in scene.events if isinstance(event, RolloutHeld)]
    assert len([one for one in held if one.reason == "approval by team-a"]) == 2
    approved = [event for event in scene.events if isinstance(event, StageApproved)]
    assert [one.approval for one in approved] == [
        "ada@example.com (team-a), commit eeeeeeeeeeee"
    ] * 2


@pytest.mark.play(policy=APPROVED, options=OPTIONS)
async def test_an_approval_that_no_approver_gave_is_removed(scene: Scene, /) -> None:
    scene.push("2")
    await asyncio.sleep(1200)
    rollout = scene.observed()
    assert rollout is not None
    hash = rollout.target.hash
    await annotate(scene, approvals=f'[{{"stage":"rest","hash":"{hash}x","by":"eve"}}]')
    await asyncio.sleep(300)
    assert len(scene.on("2")) == 2, "of another target"
    follow(scene, Commits())
    await annotate(scene, approvals=f'[{{"stage":"rest","hash":"{hash}","by":"eve"}}]')
    await asyncio.sleep(300)
    name = (await scene.daemonset())["metadata"]["annotations"][keys.TARGET]
    body = await scene.cluster.get(CONTROLLER_REVISION, "default", name)
    assert body["metadata"]["annotations"][keys.APPROVALS] == "[]"
