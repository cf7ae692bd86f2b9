"""The refs of cluster reports on a real repository."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from gitops_ds.core import errors
from gitops_ds.core.objects import CommitId
from gitops_ds.core.rollouts.cluster_report import LONGEST
from gitops_ds.core.values import replace
from gitops_ds.source.git import cluster_refs
from gitops_ds.source.git.cluster_refs import ReportRef
from gitops_ds.source.git.repository import Repository
from tests.git.test_repository import AT, BOT, MAIN, use
from tests.gitservers import Upstream

REF = "refs/gitops-ds/clusters/staging"
NONE = CommitId("")


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    repository = Upstream(tmp_path / "upstream")
    repository.commit({"a.yaml": "a: 1"})
    return repository


def report(data: bytes, cluster: str = "staging") -> ReportRef:
    return ReportRef(cluster, NONE, data)


def test_a_report_replaces_the_earlier_one_without_history(upstream: Upstream) -> None:
    async def work(repository: Repository) -> None:
        assert await repository.cluster_reports("", ["staging"]) == ()
        first = await repository.publish_report("", report(b"one\n"), None, BOT)
        later = replace(BOT, at=AT + timedelta(seconds=1))
        second = await repository.publish_report("", report(b"two\n"), first, later)
        await repository.publish_report("", report(b"three\n", "eu-1"), None, BOT)
        reports = await repository.cluster_reports("", ["staging", "eu-2"])
        assert reports == (ReportRef("staging", second, b"two\n"),)
        # The same report again costs no push, and any other state of the ref is a race.
        assert await repository.publish_report("", report(b"two\n"), second, later) == second
        for expect in (first, None):
            with pytest.raises(errors.PushRejected):
                await repository.publish_report("", report(b"four\n"), expect, BOT)

    use(upstream, work)
    assert upstream.git("rev-list", "--count", REF) == "1"
    assert upstream.git("ls-tree", "--name-only", REF) == cluster_refs.FILE
    assert upstream.git("log", "-1", "--format=%s <%ae>", REF) == (
        "Report of cluster staging <bot@example.com>"
    )
    # Neither a branch nor a tag, so that a clone and the followed revision do not change.
    assert upstream.git("for-each-ref", "--format=%(refname)", "refs/heads", "refs/tags") == (
        "refs/heads/main"
    )


def test_folders_of_one_repository_have_reports_of_their_own(upstream: Upstream) -> None:
    async def work(repository: Repository) -> None:
        await repository.publish_report("", report(b"root\n"), None, BOT)
        await repository.publish_report("fleet", report(b"fleet\n"), None, BOT)
        for path, data in (("", b"root\n"), ("fleet", b"fleet\n")):
            (reports,) = await repository.cluster_reports(path, ["staging"])
            assert reports.data == data

    use(upstream, work)


def test_a_report_of_any_other_form_is_read_as_empty_or_not_at_all(upstream: Upstream) -> None:
    blob = upstream.git("hash-object", "-w", "--stdin", input=b"no commit")
    upstream.git("update-ref", "refs/gitops-ds/clusters/blob", blob)
    upstream.git("update-ref", "refs/gitops-ds/clusters/branch", "main")
    long = upstream.git("hash-object", "-w", "--stdin", input=b"x" * (LONGEST + 1))
    row = f"100644 blob {long}\tcluster.json\n".encode()
    made = upstream.git("commit-tree", upstream.git("mktree", input=row), "-m", "long")
    upstream.git("update-ref", "refs/gitops-ds/clusters/long", made)
    upstream.git("update-ref", "refs/gitops-ds/clusters/deep/staging", "main")
    names = ["blob", "branch", "long", "staging"]

    async def work(repository: Repository) -> None:
        reports = await repository.cluster_reports("", names)
        assert {one.cluster: one.data for one in reports} == {
            "blob": b"",
            "branch": b"",
            "long": b"",
        }
        # A report that was deleted on the server is gone here too.
        upstream.git("update-ref", "-d", "refs/gitops-ds/clusters/long")
        reports = await repository.cluster_reports("", names)
        assert {one.cluster for one in reports} == {"blob", "branch"}
        assert await repository.tip(MAIN)

    use(upstream, work)


def test_a_name_that_no_ref_can_have_is_refused() -> None:
    with pytest.raises(errors.UsageError):
        cluster_refs.ref_of("eu..1", "")
