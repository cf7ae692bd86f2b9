"""A commit of a work tree is pushed to its remote `origin`, on the branch that is checked out."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gitops_ds.cli.commits import git_commit
from gitops_ds.cli.commits.git_commit import Proposal, WriteTarget
from gitops_ds.core import errors
from gitops_ds.deploy.pipeline import open_repository
from tests.cluster import program
from tests.cluster.program import Desk
from tests.plan.world import daemonset


@pytest.fixture
def at(tmp_path: Path) -> Desk:
    made = program.desk(tmp_path, tmp_path / "kubeconfig")
    made.commit("An agent", agent=daemonset())
    return made


def target(at: Desk, proposal: Proposal) -> WriteTarget:
    return asyncio.run(git_commit.on_server(open_repository.named(str(at.tree)), proposal))


def test_a_push_is_to_origin_with_the_author_of_the_work_tree(at: Desk) -> None:
    at.git("checkout", "-q", "-b", "change")
    destination = target(at, Proposal(push=True))
    assert destination.repository.directory is None
    assert destination.repository.display.endswith("origin.git")
    assert (destination.proposal.branch, destination.proposal.author) == (
        "change",
        "Ada <ada@example.com>",
    )
    assert destination.proposal.home == at.tree


@pytest.mark.parametrize("proposal", [Proposal(), Proposal(push=True, branch="other")])
def test_without_a_push_and_for_another_branch_it_is_the_work_tree(
    at: Desk, proposal: Proposal
) -> None:
    destination = target(at, proposal)
    assert destination == WriteTarget(open_repository.named(str(at.tree)), proposal)


def test_without_origin_the_push_is_refused_with_the_remedy(at: Desk) -> None:
    at.git("remote", "remove", "origin")
    destination = target(at, Proposal(push=True))

    async def open_it() -> None:
        async with git_commit.opened(destination.repository, destination.proposal):
            pass

    with pytest.raises(errors.UsageError, match=r"no remote `origin`.*-C URL, or another --branch"):
        asyncio.run(open_it())


@pytest.mark.slow
def test_restart_pushes_from_a_work_tree(at: Desk) -> None:
    before = at.git("rev-parse", "HEAD")
    done = at.run("restart", "ds/agent", "--push", "-o", "json")
    assert (done.code, done.json["branch"], done.json["pushed"]) == (0, "main", True), done.err
    assert at.git("ls-remote", "origin", "main").startswith(done.json["commit"])
    assert at.git("rev-parse", "HEAD") == before
    at.git("fetch", "-q", "origin")
    message = at.git("log", "-1", "--format=%an%n%B", done.json["commit"])
    assert message.startswith("Ada\n")
    assert "Signed-off-by" not in message


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("words", "configured", "signed"),
    [((), "", False), (("-s",), "", True), ((), "true", True), ((), "false", False)],
)
def test_a_commit_is_signed_off_on_request_only(
    at: Desk, words: tuple[str, ...], configured: str, signed: bool
) -> None:
    if configured:
        at.git("config", "format.signOff", configured)
    done = at.run("restart", "ds/agent", "--print", *words)
    assert done.code == 0, done.err
    assert ("Signed-off-by: Ada <ada@example.com>" in done.out) == signed
