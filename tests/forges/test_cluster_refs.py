"""A real Gitea takes reports of clusters in their refs, and sees no branch, tag or push in them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gitops_ds.source.git import cluster_refs
from tests.forges.gitea import Gitea
from tests.service.test_service import until

pytestmark = [pytest.mark.forge, pytest.mark.xdist_group("gitea")]


def test_a_report_is_not_a_push_of_a_branch(tmp_path: Path, gitea: Gitea) -> None:
    name = f"reports-{os.urandom(4).hex()}"
    token = gitea.repository(name)
    work = gitea.clone(f"{name}-owner/{name}", tmp_path / "work", token)
    repository, ref = f"/repos/{name}-owner/{name}", cluster_refs.ref_of("staging", "")

    def pushed() -> list[str]:
        """The refs of the pushes that people and webhooks see."""
        feed = gitea.api("GET", f"{repository}/activities/feeds", token=token)
        return [one["ref_name"] for one in feed if one["op_type"] == "commit_repo"]

    def names(of: str) -> list[str]:
        return [one["name"] for one in gitea.api("GET", f"{repository}/{of}", token=token)]

    def publish(content: str, expect: str) -> str:
        (work.directory / cluster_refs.FILE).write_text(content)
        blob = work.git("hash-object", "-w", cluster_refs.FILE).strip()
        work.git("update-index", "--add", "--cacheinfo", f"100644,{blob},{cluster_refs.FILE}")
        tree = work.git("write-tree").strip()
        commit = work.git("commit-tree", tree, "-m", "Report of cluster staging").strip()
        work.git("push", f"--force-with-lease={ref}:{expect}", "origin", f"{commit}:{ref}")
        return commit

    (work.directory / "a.yaml").write_text("a: 1\n")
    work.push("main", "a change")
    first = publish("one\n", "")
    second = publish("two\n", first)
    assert work.git("ls-remote", "origin", ref).split() == [second, ref]
    assert names("branches") == ["main"]
    assert names("tags") == []
    # Gitea handles pushes in their order, a little later.
    (work.directory / "a.yaml").write_text("a: 2\n")
    work.push("main", "another change")
    until(lambda: len(pushed()) >= 2, lambda: str(pushed()))
    assert pushed() == ["refs/heads/main"] * 2
