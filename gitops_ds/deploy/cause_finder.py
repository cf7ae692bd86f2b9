"""Finds the commits that gave the agents their templates: reads the branch since the last applied
commit, and renders the commits that can have changed a template.

A commit is applied also if causes can't be found: the records then name the applied commit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set

import msgspec

from gitops_ds.core import errors
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.live import Live
from gitops_ds.core.objects import CommitId, Key
from gitops_ds.core.rollouts.halted_rollout import BranchCommit
from gitops_ds.core.rollouts.template_cause import RenderedCommit, TemplateCause
from gitops_ds.core.values import replace
from gitops_ds.deploy.live_state import LocatedBundle
from gitops_ds.rollouts.causes import template_causes
from gitops_ds.rollouts.causes.template_causes import BranchLine, WantedCause

_REMEMBERED = 64  # rendered commits


async def _no_line(since: CommitId | None, head: CommitId, limit: int) -> Sequence[BranchCommit]:
    raise errors.SourceError("the commits of the branch are unknown")


async def _no_render(commits: Sequence[CommitId]) -> Mapping[CommitId, RenderedCommit]:
    return {}


async def _contains(head: CommitId, commits: Set[CommitId]) -> Set[CommitId]:
    return commits


class CommitSource(msgspec.Struct, frozen=True):
    """The commits of a branch.

    `line` returns those of the branch itself after the first (None: all) and up to the second one,
    newest first, at most a number of them. `render` renders commits, without those that it can't;
    `contained` returns those of some commits that are in the history of the first argument. `path`
    is the followed folder.
    """

    line: Callable[[CommitId | None, CommitId, int], Awaitable[Sequence[BranchCommit]]] = _no_line
    render: Callable[[Sequence[CommitId]], Awaitable[Mapping[CommitId, RenderedCommit]]] = (
        _no_render
    )
    contained: Callable[[CommitId, Set[CommitId]], Awaitable[Set[CommitId]]] = _contains
    path: str = ""


_NO_COMMITS = CommitSource()
_Records = Mapping[Key, TemplateCause]
_Question = tuple[CommitId, Mapping[Key, WantedCause]]


class CauseFinder:
    """Finds causes, and keeps what commits render to. The reconciliations of a repository and its
    reverts share one.
    """

    def __init__(self, source: CommitSource = _NO_COMMITS) -> None:
        self._source = source
        self._rendered = OrderedDict[CommitId, RenderedCommit]()
        self._answers: dict[CommitId | None, tuple[_Question | None, _Records]] = {}

    async def of(
        self, located: LocatedBundle, state: DeployerState, live: Live
    ) -> Mapping[Key, TemplateCause]:
        """The records that the state lacks, of the templates of a bundle: by the commits since the
        last applied one, and before, if none of them changed the template.
        """
        head, since = located.commit, state.last_attempted
        if head is None:
            return {}
        lost = await self._lost(state, head.id)
        wanted = template_causes.wanted(located.bundle, state, live, lost)
        found = await self.find(since, head.id, wanted) if wanted and since is not None else {}
        earlier = {key: cause for key, cause in wanted.items() if key not in found}
        if not earlier:
            return found
        earlier = {key: replace(cause, before=None) for key, cause in earlier.items()}
        return {**found, **await self.find(None, head.id, earlier)}

    async def _lost(self, state: DeployerState, head: CommitId) -> Set[CommitId]:
        """The recorded commits that a rewrite of the branch removed."""
        since, contained = state.last_attempted, self._source.contained
        if since is None or since == head:
            return frozenset()
        try:
            if await contained(head, {since}):
                return frozenset()
            known = {CommitId(cause.commit) for cause in state.causes.values()}
            return known - await contained(head, known)
        except errors.GitopsError:
            return frozenset()

    async def find(
        self, since: CommitId | None, head: CommitId, wanted: Mapping[Key, WantedCause]
    ) -> Mapping[Key, TemplateCause]:
        """The records of templates that `head` has, as far as they can be found; `since` is None if
        none is known to be another one.
        """
        most = template_causes.MOST_COMMITS if since is not None else template_causes.MOST_BACK
        question = head, dict(wanted)
        former, answer = self._answers.get(since, (None, {}))
        if former == question:  # of a suspended repository, which records no cause
            return answer
        try:
            commits = await self._source.line(since, head, most + 1)
            if len(commits) > most and since is not None:
                return {}
            line = BranchLine(since or CommitId(""), commits, self._source.path)
            answer = template_causes.found(line, wanted, await self._searched(line, wanted))
        except errors.SourceTooLarge:
            answer = {}  # it is as large the next time, and takes as much time of git
        except errors.GitopsError:
            return {}
        kept = self._answers
        if since is not None:
            kept = {None: kept.get(None, (None, {}))}
        self._answers = {**kept, since: (question, answer)}
        return answer

    async def _searched(
        self, line: BranchLine, wanted: Mapping[Key, WantedCause]
    ) -> Mapping[CommitId, RenderedCommit]:
        """The rendered commits by which the causes are found."""
        tried, rendered = set[CommitId](), dict[CommitId, RenderedCommit]()
        while True:
            missing = [
                commit
                for commit in template_causes.to_render(line, wanted, rendered)
                if commit not in tried
            ][: template_causes.MOST_RENDERS - len(tried)]
            if not missing:
                return rendered
            tried.update(missing)
            rendered |= await self.rendered(missing)

    async def rendered(self, commits: Sequence[CommitId]) -> Mapping[CommitId, RenderedCommit]:
        """What these commits render to, without those that can't be rendered. Raises
        SourceError.
        """
        missing = [commit for commit in commits if commit not in self._rendered]
        if missing:
            self._rendered |= await self._source.render(missing)
        known = {commit: self._rendered[commit] for commit in commits if commit in self._rendered}
        while len(self._rendered) > _REMEMBERED:
            self._rendered.popitem(last=False)
        return known
