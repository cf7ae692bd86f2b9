"""The commits that gave the agents their templates, by the content of the commits of a branch.

The branch is read in first-parent order: a merge commit counts as one commit, with all that it
brings. Of the commits since the last applied one only those can change a template that touch its
files; they are rendered, the others are not. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import msgspec

from gitops_ds.apimachinery.rollouts import halted_templates
from gitops_ds.model.deployer_state import DeployerState
from gitops_ds.model.live import Live
from gitops_ds.model.objects import Body, CommitId, Key
from gitops_ds.model.rollouts.halted_rollout import BranchCommit
from gitops_ds.model.rollouts.proven_templates import TemplateHistory
from gitops_ds.model.rollouts.template_cause import RenderedCommit, TemplateCause
from gitops_ds.model.sources.bundle import Bundle, Manifest
from gitops_ds.model.sources.source_tree import CommitInfo
from gitops_ds.plan.rollouts import applied_rollouts, git_template

MOST_COMMITS = 200  # of the branch since the last applied one
MOST_RENDERS = 20  # commits that are rendered to find causes

Rendered = Mapping[CommitId, RenderedCommit]


class WantedCause(msgspec.Struct, frozen=True):
    """A template whose commit is not known yet.

    `source` is its digest, `places` are the files and directories that can change it. `before` is
    the record of the last applied template, None if unknown. A revert restores the template with
    the digest `goal` (None: unknown), the last applied one that was not halted; `is_halted`: the
    one before was.
    """

    source: str
    places: Set[str]
    before: TemplateCause | None = None
    goal: str | None = None
    is_halted: bool = False


def known(bundle: Bundle, state: DeployerState) -> Mapping[Key, TemplateCause]:
    """The records of the templates of a bundle, as far as the state has them."""
    causes = {}
    for manifest in _from_git(bundle):
        source = git_template.digest(manifest)
        cause = state.causes.get(manifest.key) or _of_history(manifest.key, source, state)
        if cause is not None and cause.source == source:
            causes[manifest.key] = cause
    return causes


def _of_history(key: Key, source: str, state: DeployerState) -> TemplateCause | None:
    """The record of a template by the state of a version that recorded only commits."""
    history = state.templates.get(key, TemplateHistory())
    for one in (history.target, history.applied, history.proof):
        if one is not None and one.source == source and one.commit:
            return TemplateCause(source, one.commit, exact=False)
    return None


def completed(
    bundle: Bundle, causes: Mapping[Key, TemplateCause], head: CommitInfo | None
) -> Mapping[Key, TemplateCause]:
    """The records of all templates of a bundle: `head`, from which it was rendered, gave those
    whose cause is unknown, as far as anyone knows.
    """
    if head is None:
        return causes
    unknown = (one for one in _from_git(bundle) if one.key not in causes)
    return {
        **causes,
        **{one.key: record(git_template.digest(one), head, (), exact=False) for one in unknown},
    }


def wanted(bundle: Bundle, state: DeployerState, live: Live) -> Mapping[Key, WantedCause]:
    """The DaemonSets whose template has no record."""
    missing, recorded = {}, known(bundle, state)
    for manifest in _from_git(bundle):
        key, source = manifest.key, git_template.digest(manifest)
        if key in recorded:
            continue
        before = state.causes.get(key)
        history = state.templates.get(key, TemplateHistory())
        is_halted = before is not None and _is_halted(before, live, key, history)
        goal = before.source if before is not None else None
        if is_halted:
            goal = history.proof.source if history.proof is not None else None
        places = applied_rollouts.deciding_files(manifest, bundle)
        missing[key] = WantedCause(source, places, before, goal, is_halted)
    return missing


def _from_git(bundle: Bundle) -> Sequence[Manifest]:
    every = bundle.manifests.values()
    return [one for one in every if one.key.is_daemonset and one.holder is None]


def _is_halted(before: TemplateCause, live: Live, key: Key, history: TemplateHistory) -> bool:
    """Whether the last applied template was halted, or is on hold."""
    metadata: Body = (live.objects.get(key) or {}).get("metadata") or {}
    halted = halted_templates.remembered(metadata, live.targets.get(key, ()), history)
    return any(
        (one.source and one.source == before.source) or (one.commit and one.commit == before.commit)
        for one in halted
    )


class BranchLine(msgspec.Struct, frozen=True):
    """The commits of the branch itself after `since`, newest first; `path` is the followed
    folder.
    """

    since: CommitId
    commits: Sequence[BranchCommit]
    path: str = ""

    def candidates(self, places: Set[str]) -> Sequence[BranchCommit]:
        """The commits that can change a template; all if none touches one of its files."""
        touching = [
            commit
            for commit in self.commits
            if applied_rollouts.touches(commit.files, places, self.path)
        ]
        return touching or self.commits

    @property
    def is_direct(self) -> bool:
        """Whether the oldest commit is directly on `since`: false after a rewrite of the branch,
        and if its line has another start.
        """
        return bool(self.commits) and self.commits[-1].info.parents[:1] == (self.since,)


def to_render(line: BranchLine, causes: Mapping[Key, WantedCause]) -> tuple[CommitId, ...]:
    """The commits to render: all candidates but the newest, whose template is known, and the commit
    before the oldest one if no record has its template.
    """
    ids = dict[CommitId, None]()
    for cause in causes.values():
        candidates = line.candidates(cause.places)
        ids |= dict.fromkeys(commit.info.id for commit in candidates[1:])
        if candidates and not _has_start(line, cause):
            ids |= dict.fromkeys(candidates[-1].info.parents[:1])
    return tuple(ids)[:MOST_RENDERS]


def _has_start(line: BranchLine, cause: WantedCause) -> bool:
    return cause.before is not None and line.is_direct


def found(
    line: BranchLine, causes: Mapping[Key, WantedCause], rendered: Rendered
) -> Mapping[Key, TemplateCause]:
    """The records, by the rendered commits. None for a template that no commit after `since`
    changed.
    """
    records = {}
    for key, cause in causes.items():
        candidates = line.candidates(cause.places)
        if candidates and (record := _found(line, candidates, _of(key, rendered), cause)):
            records[key] = record
    return records


def _of(key: Key, rendered: Rendered) -> Mapping[CommitId, str]:
    """The digests of one template, by commit; empty without the DaemonSet."""
    return {commit: one.templates.get(key, "") for commit, one in rendered.items()}


def _found(
    line: BranchLine,
    candidates: Sequence[BranchCommit],
    digests: Mapping[CommitId, str],
    cause: WantedCause,
) -> TemplateCause | None:
    after, changes = cause.source, list[_Change]()
    for number, commit in enumerate(candidates):
        earlier = candidates[number + 1 : number + 2]
        before = (
            digests.get(earlier[0].info.id) if earlier else _start(line, commit, digests, cause)
        )
        if before is None:
            some = tuple(one.info.id for one in candidates)
            newest = changes[0].commit if changes else candidates[0]
            return record(cause.source, newest.info, some, exact=False)
        if before != after:
            changes.append(_Change(commit, before))
        after = before
        if changes and after == cause.goal:
            break
    if not changes:
        return None
    goal = after if cause.goal is None else cause.goal
    # a revert need not go further back than to the last commit with the template
    last = next((n for n, one in enumerate(changes) if one.before == goal), len(changes) - 1)
    commits = tuple(one.commit.info.id for one in changes[: last + 1])
    is_exact, halted = True, cause.before if cause.is_halted else None
    if halted is not None and changes[last].before == halted.source:
        # The template before was halted: a revert undoes its commits too.
        commits = tuple(dict.fromkeys((*commits, *map(CommitId, halted.commits))))
        is_exact = halted.exact
    return record(cause.source, changes[0].commit.info, commits, exact=is_exact)


class _Change(msgspec.Struct, frozen=True):
    """A commit that changed a template, and the digest before it."""

    commit: BranchCommit
    before: str


def _start(
    line: BranchLine, oldest: BranchCommit, digests: Mapping[CommitId, str], cause: WantedCause
) -> str | None:
    """The digest before the oldest candidate."""
    if cause.before is not None and line.is_direct:
        return cause.before.source
    parents = oldest.info.parents[:1]
    return digests.get(parents[0]) if parents else ""


def record(
    source: str, info: CommitInfo, commits: tuple[CommitId, ...], *, exact: bool = True
) -> TemplateCause:
    """The record of a template with this commit."""
    at = info.committed.timestamp()
    return TemplateCause(source, info.id, info.author, at, info.subject, commits, exact)
