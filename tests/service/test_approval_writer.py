"""Approvals by signed commits of a real repository, with real ssh keys."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from gitops_ds.cli.approve import rollout_approvals
from gitops_ds.cli.approve.rollout_approvals import ApprovedStage
from gitops_ds.cli.commits import git_commit
from gitops_ds.cli.commits.git_commit import Proposal
from gitops_ds.core.cluster import Cluster
from gitops_ds.core.errors import Refused
from gitops_ds.core.events.base import Event
from gitops_ds.core.events.rollouts import ApprovalFailed, ApprovalIgnored, StageApproved
from gitops_ds.core.objects import CommitId, Key
from gitops_ds.core.rollouts.staged_rollout import RolloutTarget, WaitingStage
from gitops_ds.core.rollouts.stopped_rollouts import StoppedRollouts
from gitops_ds.core.values import replace
from gitops_ds.deploy.pipeline import open_repository
from gitops_ds.kube.client.supervisor import ended
from gitops_ds.rollouts.state import keys, rollout_annotations
from gitops_ds.service.rollouts.approval_writer import ApprovalWriter
from gitops_ds.service.rollouts.repository_context import RepositoryContext
from gitops_ds.service.settings.repository import (
    ApproverSettings,
    RepositorySettings,
    VerifySettings,
)
from gitops_ds.source.git import address
from gitops_ds.source.git.branch_history import ChangedFiles
from gitops_ds.source.git.repository import Repository
from tests import signing
from tests.gitservers import Upstream
from tests.signing import SshSigner

pytestmark = pytest.mark.system
AGENT = Key("apps", "DaemonSet", "infra", "agent")


@dataclass
class Patches:
    """A cluster that notes the annotations of revisions."""

    found: list[Mapping[str, Any]] = field(default_factory=list)

    async def patch(self, resource: object, namespace: str, name: str, body: Any) -> Any:
        assert (namespace, name, body["metadata"]["uid"]) == ("infra", "agent-5d9f", "u2")
        self.found.append(body["metadata"]["annotations"])
        return body


@dataclass
class Scene:
    """A repository with a rollout of its commit, and the people who sign."""

    directory: Path
    upstream: Upstream
    ada: SshSigner
    eve: SshSigner
    stage: WaitingStage

    def looks(self, **approvers: ApproverSettings) -> tuple[str, list[Event]]:
        """The approver after one check, empty without an approval; and the events."""
        allowed = self.directory / "allowed"
        allowed.write_bytes(self.ada.allowed() + self.eve.allowed())
        settings = RepositorySettings(
            url=str(self.upstream.path),
            allow_local=True,
            branch="main",
            verify=VerifySettings(allowed_signers_file=str(allowed)),
            approvers=approvers or {"team-gpu": ApproverSettings(frozenset({self.ada.name}))},
        )
        return asyncio.run(self._look(settings))

    async def _look(self, settings: RepositorySettings) -> tuple[str, list[Event]]:
        events: list[Event] = []
        cluster, looked = Patches(), asyncio.Event()
        where = address.parse(str(self.upstream.path), allow_local=True)

        async with Repository(where, self.directory / "cache") as repository:
            stopped = StoppedRollouts(self.stage.commit, (), (self.stage,))

            calls = itertools.count(1)

            def rollouts() -> StoppedRollouts:
                if next(calls) == 3:  # before the look, in it, after it
                    looked.set()
                return stopped

            context = RepositoryContext(
                repository=repository,
                settings=settings,
                emit=events.append,
                clock=lambda: 1e9,
                chance=lambda: 0.0,
                stopped_rollouts=rollouts,
            )
            writer = ApprovalWriter(context, cast("Cluster", cluster))
            task = asyncio.create_task(writer.run())
            try:
                async with asyncio.timeout(20):
                    await looked.wait()
            finally:
                await ended(task)
        found = [
            rollout_annotations.decoded_approvals(one[keys.APPROVALS]) for one in cluster.found
        ]
        return (found[-1][0].by if found and found[-1] else ""), events


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    upstream = Upstream(tmp_path / "upstream")
    ada = signing.ssh_signer(tmp_path, "ada@example.com")
    eve = signing.ssh_signer(tmp_path, "eve@example.com")
    upstream.commit({"a.yaml": "a: 1\n"})
    commit = CommitId(upstream.commit({"a.yaml": "a: 2\n"}))
    stage = WaitingStage(
        daemonset=AGENT,
        owner="u1",
        revision="agent-5d9f",
        uid="u2",
        hash="5d9f",
        commit=commit,
        since="",
        stage="gpu",
        approvers=("team-gpu",),
        stages=("canary", "gpu", "rest"),
    )
    return Scene(tmp_path, upstream, ada, eve, stage)


def message(value: str) -> str:
    return f"Approve it\n\nGitops-Ds-Approve: {value}"


def test_a_commit_signed_by_an_approver_approves_its_rollout(scene: Scene) -> None:
    value = f"infra/agent/gpu {scene.stage.commit}"
    signing.commit(scene.upstream, message(value), *scene.ada.config())
    signing.commit(scene.upstream, "later", *scene.eve.config())
    by, events = scene.looks()
    assert by == "ada@example.com"
    assert [type(event) for event in events] == [StageApproved]


NOT_SIGNED = "it has no signature of an approver"


@pytest.mark.parametrize(
    ("case", "flaw"),
    [
        ("unsigned", NOT_SIGNED),
        ("a stranger", NOT_SIGNED),
        ("another commit", "its trailer names commit 000000000000"),
        ("another stage", ""),
        (
            "a stage that does not exist",
            'its trailer names stage "gpus"; the stages are canary, gpu, rest',
        ),
        ("not a trailer", ""),
        ("branch", ""),
    ],
)
def test_no_other_commit_approves(scene: Scene, case: str, flaw: str) -> None:
    value, signer = f"infra/agent/gpu {scene.stage.commit}", scene.ada.config()
    text = message(value)
    match case:
        case "unsigned":
            signer = ()
        case "a stranger":
            signer = scene.eve.config()
        case "another commit":
            text = message(f"infra/agent/gpu {'0' * 40}")
        case "another stage":
            text = message(f"infra/agent/rest {scene.stage.commit}")
        case "a stage that does not exist":
            text = message(f"infra/agent/gpus {scene.stage.commit}")
        case "not a trailer":
            text = f"Gitops-Ds-Approve: {value}\n\nWords after it.\n\nMore words."
        case "branch":
            scene.upstream.git("checkout", "--quiet", "-b", "other")
    commit = signing.commit(scene.upstream, text, *signer)
    by, events = scene.looks()
    assert (by, ignored(events)) == (
        "",
        [f"commit {commit[:12]} does not count ({flaw})"] * bool(flaw),
    )


def ignored(events: list[Event]) -> list[str]:
    """The commits that do not count, each with its reason."""
    assert all(isinstance(event, ApprovalIgnored) for event in events)
    return [
        event.message.partition(":")[0] for event in events if isinstance(event, ApprovalIgnored)
    ]


def test_the_commit_of_the_rollout_approves_itself_without_its_id(scene: Scene) -> None:
    commit = signing.commit(scene.upstream, message("infra/agent/gpu"), *scene.ada.config())
    by, events = scene.looks()
    flaw = f"commit {commit[:12]} does not count (its trailer names no commit)"
    assert (by, ignored(events)) == ("", [flaw]), "it is another commit than that of the rollout"
    scene.stage = replace(scene.stage, commit=CommitId(commit))
    assert scene.looks()[0] == "ada@example.com"
    scene.upstream.git("reset", "--quiet", "--hard", "HEAD~1")
    assert scene.looks() == ("", []), "it is not on the branch any longer"


def test_an_approval_that_does_not_count_is_nothing_beside_one_that_does(scene: Scene) -> None:
    value = f"infra/agent/gpu {scene.stage.commit}"
    signing.commit(scene.upstream, message(value), *scene.ada.config())
    signing.commit(scene.upstream, message(value), *scene.eve.config())
    by, events = scene.looks()
    assert (by, [type(event) for event in events]) == ("ada@example.com", [StageApproved])


def test_a_name_without_an_entry_never_approves_and_that_is_reported(scene: Scene) -> None:
    value = f"infra/agent/gpu {scene.stage.commit}"
    signing.commit(scene.upstream, message(value), *scene.ada.config())
    by, events = scene.looks(other=ApproverSettings(frozenset({scene.ada.name})))
    assert by == ""
    (event,) = events
    assert isinstance(event, ApprovalFailed)
    assert "approval.from names team-gpu" in event.message


def test_the_command_writes_a_commit_that_approves(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = scene.directory / "gitconfig"
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    target = RolloutTarget("5d9f", {}, "agent-5d9f", "u2", scene.stage.commit)
    approved = ApprovedStage(AGENT, "gpu", target)
    named = open_repository.named(scene.upstream.path.as_uri())
    text = "[user]\nname = Ada\nemail = ada@example.com\n"
    config.write_text(text)
    proposal = Proposal("main", push=True)
    with pytest.raises(Refused, match="must be signed"):
        asyncio.run(rollout_approvals.commit_approval(named, proposal, approved))
    assert git_commit.signature(named, proposal).signing is None
    text += f"signingKey = {scene.ada.key}\n[commit]\ngpgSign = true\n[gpg]\nformat = ssh\n"
    config.write_text(text)
    asyncio.run(rollout_approvals.commit_approval(named, proposal, approved))
    assert scene.upstream.git("diff", "--stat", "main~1", "main") == ""
    assert scene.looks()[0] == "ada@example.com"
    unknown = replace(approved, target=replace(target, commit="0" * 40))
    with pytest.raises(Refused, match="not in the history"):
        asyncio.run(rollout_approvals.commit_approval(named, proposal, unknown))


def test_the_commits_that_brought_a_template_are_those_of_the_branch_itself(scene: Scene) -> None:
    git, since = scene.upstream.git, scene.stage.commit
    git("checkout", "--quiet", "-b", "feature")
    scene.upstream.commit({"b.yaml": "b: 1\n"})
    scene.upstream.commit({"c.yaml": "c: 1\n"})
    git("checkout", "--quiet", "main")
    own = scene.upstream.commit({"d.yaml": "d: 1\n"})
    git("merge", "--quiet", "--no-ff", "--message", "Merge", "feature")
    merge = git("rev-parse", "HEAD")

    async def brought(since: str, commit: str, limit: int) -> dict[str, frozenset[str]] | None:
        where = address.parse(str(scene.upstream.path), allow_local=True)
        async with Repository(where, scene.directory / "cache") as repository:
            await repository.fetch(CommitId(merge))
            commits = await repository.commits_that_brought(
                CommitId(since), CommitId(commit), limit
            )
        return None if commits is None else {one.id: one.files for one in commits}

    files = {merge: frozenset({"b.yaml", "c.yaml"}), own: frozenset({"d.yaml"})}
    assert asyncio.run(brought(since, merge, 2)) == files
    assert asyncio.run(brought(since, merge, 1)) is None, "too many"
    assert asyncio.run(brought(merge, own, 5)) is None, "not in its history"
    assert asyncio.run(brought("0" * 40, merge, 5)) is None, "not known"
    assert asyncio.run(brought(merge, merge, 5)) == {}


def test_a_merge_of_the_branch_into_a_pull_request_brings_the_commits_of_the_branch(
    scene: Scene,
) -> None:
    git, since = scene.upstream.git, scene.stage.commit
    git("checkout", "--quiet", "-b", "feature")
    reviewed = CommitId(scene.upstream.commit({"b.yaml": "b: 1\n"}))
    git("checkout", "--quiet", "main")
    git("checkout", "--quiet", "-b", "other")
    evil = CommitId(scene.upstream.commit({"d.yaml": "d: 1\n"}))
    git("checkout", "--quiet", "main")
    git("merge", "--quiet", "--no-ff", "--message", "Merge", "other")
    unreviewed = CommitId(git("rev-parse", "HEAD"))
    git("checkout", "--quiet", "feature")
    git("merge", "--quiet", "--no-ff", "--message", "Merge", "main")
    head = CommitId(git("rev-parse", "HEAD"))
    git("update-ref", "refs/heads/main", head)

    async def brought() -> None:
        where = address.parse(str(scene.upstream.path), allow_local=True)
        async with Repository(where, scene.directory / "cache") as repository:
            await repository.fetch(head)
            line = await repository.commits_that_brought(since, head, 5)
            assert line is not None
            assert [one.id for one in line] == [head, reviewed]
            more = await repository.commits_that_brought(since, line[0].parents[1], 5, line[0])
            d = frozenset({"d.yaml"})
            assert more == (ChangedFiles(unreviewed, d, (since, evil)),)
            assert await repository.commits_that_brought(since, evil, 0, line[0]) is None

    asyncio.run(brought())
