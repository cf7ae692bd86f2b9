"""Whether a commit gives files an earlier content back, on a real repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitops_ds.core import errors
from gitops_ds.core.objects import CommitId
from gitops_ds.source.git.repository import Repository
from tests.git.test_repository import fetched, use
from tests.gitservers import Upstream

CLAIM = 'Revert "two"\n\nThis reverts commit {}.\n\nGitops-Ds-Reverts: {}'


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return Upstream(tmp_path / "upstream")


def find(
    upstream: Upstream, since: str, tip: str, among: list[str], path: str = "fleet"
) -> CommitId | None:
    async def work(repository: Repository) -> CommitId | None:
        await fetched(repository)
        some = [CommitId(one) for one in among]
        return await repository.earlier_files(CommitId(since), CommitId(tip), some, path)

    return use(upstream, work)


@pytest.mark.slow
def test_a_revert_is_detected_by_content_and_not_by_message(upstream: Upstream) -> None:
    agent, other = "fleet/agent [1].yaml", "fleet/other.yaml"
    one = upstream.commit({agent: "1", other: "1", "README": "1"})
    two = upstream.commit({agent: "2"})
    claim = upstream.commit({agent: "3"}, CLAIM.format(two, two))
    assert find(upstream, two, claim, [one, two]) is None
    back = upstream.commit({agent: "1"}, "Any message")
    for since in (two, claim):
        assert find(upstream, since, back, [one, two]) == one
    # Only commits that were in the cluster count.
    assert find(upstream, two, back, [two]) is None
    assert find(upstream, two, back, [two, "f" * 40]) is None
    # A later change of another file stays, and a new file is not part of the earlier content.
    assert find(upstream, two, upstream.commit({other: "2"}), [one, two]) is None
    # The change that was taken back is a change again.
    again = upstream.commit({agent: "2", other: "1"}, CLAIM.format(back, back))
    assert find(upstream, back, again, [one, two]) is None
    assert find(upstream, again, upstream.commit({agent: "1"}), [one, two, back]) in (one, back)


def test_added_and_deleted_files_are_content(upstream: Upstream) -> None:
    one = upstream.commit({"fleet/a.yaml": "1"})
    two = upstream.commit({"fleet/a.yaml": None, "fleet/b.yaml": "1"})
    back = upstream.commit({"fleet/a.yaml": "1", "fleet/b.yaml": None})
    assert find(upstream, two, back, [one]) == one
    assert find(upstream, back, upstream.commit({"fleet/a.yaml": None}), [one, two]) is None


def test_files_outside_the_followed_folder_do_not_count(upstream: Upstream) -> None:
    one = upstream.commit({"fleet/a.yaml": "1", "README": "1", "fleet-2/a.yaml": "1"})
    two = upstream.commit({"README": "2", "fleet-2/a.yaml": "2"})
    assert find(upstream, one, two, []) == one
    assert find(upstream, one, two, [one], path="") is None


def test_an_unknown_commit_is_an_error(upstream: Upstream) -> None:
    one = upstream.commit({"fleet/a.yaml": "1"})
    with pytest.raises(errors.RevisionUnknown):
        find(upstream, "f" * 40, one, [one])
