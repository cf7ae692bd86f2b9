"""Whether the tip of the branch only restores an earlier content of the cluster.

`git.earlier_files` compares the files, `plan.rollouts.earlier_manifests` the rendered manifests.
The earlier commits are those of the DaemonSets' revisions, which this cluster had before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

import msgspec

from gitops_ds import errors
from gitops_ds.model.deployer_state import DeployerState
from gitops_ds.model.objects import CommitId
from gitops_ds.pipeline.prepare import Prepared
from gitops_ds.plan.rollouts import earlier_manifests

# The earlier commit with the files of a tip: after `since`, among some commits.
FindEarlier = Callable[[CommitId, CommitId, Collection[CommitId]], Awaitable[CommitId | None]]


async def none_earlier(
    since: CommitId, tip: CommitId, among: Collection[CommitId]
) -> CommitId | None:
    """For a source that can't compare commits: no commit is earlier."""
    return None


class _Comparison(msgspec.Struct, frozen=True):
    """The result for a tip, and its inputs."""

    tip: CommitId
    since: CommitId
    among: frozenset[CommitId]
    is_earlier: bool


class EarlierContent:
    """Compares the tips of one repository; `prepared` renders a commit."""

    def __init__(
        self, find: FindEarlier, prepared: Callable[[CommitId], Awaitable[Prepared]]
    ) -> None:
        self._find, self._prepared = find, prepared
        self._last: _Comparison | None = None

    async def has(self, tip: CommitId, state: DeployerState) -> bool:
        """Whether the tip is a revert, by its content; False if a commit can't be rendered.

        Raises SourceUnreachable.
        """
        if state.last_good is None:
            return False
        among = frozenset(one for kept in state.revisions.values() for one in kept.values())
        last = self._last
        if last is None or (last.tip, last.since, last.among) != (tip, state.last_good, among):
            is_earlier = False
            try:
                is_earlier = await self._compare(tip, state.last_good, among)
            except errors.SourceUnreachable:
                raise
            except errors.SourceError:
                pass
            last = self._last = _Comparison(tip, state.last_good, among, is_earlier)
        return last.is_earlier

    async def _compare(self, tip: CommitId, since: CommitId, among: Collection[CommitId]) -> bool:
        earlier = await self._find(since, tip, among)
        if earlier is None:
            return False
        sides = [await self._prepared(one) for one in dict.fromkeys((tip, since, earlier))]
        if not all(one.deployable for one in sides):
            return False
        return earlier_manifests.has_only(sides[0].bundle, sides[1].bundle, sides[-1].bundle)
