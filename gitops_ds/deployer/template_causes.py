"""Finds the commits that gave the agents their templates: reads the branch since the last applied
commit, and renders the commits that can have changed a template.

A commit is applied also if causes can't be found: the records then name the applied commit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from gitops_ds import errors
from gitops_ds.deployer.live_state import LocatedBundle
from gitops_ds.model.deployer_state import DeployerState
from gitops_ds.model.live import Live
from gitops_ds.model.objects import CommitId, Key
from gitops_ds.model.rollouts.halted_rollout import BranchCommit
from gitops_ds.model.rollouts.template_cause import RenderedCommit, TemplateCause
from gitops_ds.plan.rollouts import template_causes
from gitops_ds.plan.rollouts.template_causes import BranchLine, WantedCause

_REMEMBERED = 64  # rendered commits


async def _no_line(since: CommitId, head: CommitId, limit: int) -> Sequence[BranchCommit]:
    raise errors.SourceError("the commits of the branch are unknown")


async def _no_render(commits: Sequence[CommitId]) -> Mapping[CommitId, RenderedCommit]:
    return {}


class CommitSource(msgspec.Struct, frozen=True):
    """The commits of a branch.

    `line` returns those of the branch itself after the first and up to the second one, newest
    first, at most a number of them. `render` renders commits, without those that it can't; `path`
    is the followed folder.
    """

    line: Callable[[CommitId, CommitId, int], Awaitable[Sequence[BranchCommit]]] = _no_line
    render: Callable[[Sequence[CommitId]], Awaitable[Mapping[CommitId, RenderedCommit]]] = (
        _no_render
    )
    path: str = ""


class CauseFinder:
    """Finds causes, and keeps what commits render to."""

    def __init__(self, source: CommitSource) -> None:
        self._source = source
        self._rendered = OrderedDict[CommitId, RenderedCommit]()

    async def of(
        self, located: LocatedBundle, state: DeployerState, live: Live
    ) -> Mapping[Key, TemplateCause]:
        """The records that the state lacks, of the templates of a bundle; none for the first
        commit.
        """
        head, since = located.commit, state.last_attempted
        wanted = template_causes.wanted(located.bundle, state, live)
        if not wanted or head is None or since is None:
            return {}
        return await self.find(since, head.id, wanted)

    async def find(
        self, since: CommitId, head: CommitId, wanted: Mapping[Key, WantedCause]
    ) -> Mapping[Key, TemplateCause]:
        """The records of templates that `head` has, as far as they can be found."""
        most = template_causes.MOST_COMMITS
        try:
            commits = await self._source.line(since, head, most + 1)
            line = BranchLine(since, commits, self._source.path)
            if len(commits) > most:
                return {}
            rendered = await self.rendered(template_causes.to_render(line, wanted))
        except errors.GitopsError:
            return {}
        return template_causes.found(line, wanted, rendered)

    async def rendered(self, commits: Sequence[CommitId]) -> Mapping[CommitId, RenderedCommit]:
        """What these commits render to, without those that can't be rendered. Raises
        SourceError.
        """
        missing = [commit for commit in commits if commit not in self._rendered]
        if missing:
            self._rendered |= await self._source.render(missing)
        known = {one: self._rendered[one] for one in commits if one in self._rendered}
        while len(self._rendered) > _REMEMBERED:
            self._rendered.popitem(last=False)
        return known
