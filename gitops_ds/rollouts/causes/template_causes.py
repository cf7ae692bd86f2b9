"""The commits that gave the agents their templates, by the content of the commits of a branch.

The branch is read in first-parent order: a merge commit counts as one commit, with all that it
brings. Of the commits since the last applied one only those can change a template that touch its
files; they are rendered, the newest first, until one has another template. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from pathlib import PurePosixPath
from typing import NamedTuple

import msgspec

from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.live import Live
from gitops_ds.core.objects import Body, CommitId, Key
from gitops_ds.core.rollouts.halted_rollout import BranchCommit
from gitops_ds.core.rollouts.proven_templates import TemplateHistory
from gitops_ds.core.rollouts.template_cause import RenderedCommit, TemplateCause
from gitops_ds.core.sources import file_places
from gitops_ds.core.sources.bundle import Bundle, Manifest
from gitops_ds.core.sources.source_tree import CommitInfo
from gitops_ds.rollouts.causes import template_digests, template_files
from gitops_ds.rollouts.state import halted_templates

MOST_COMMITS = 200  # of the branch since the last applied one
MOST_BACK = 100  # of the branch without a last applied one
MOST_RENDERS = 20  # commits that are rendered to find causes
# Files that name others: before a change of one, other files may have decided the template.
_NAMING = {"kustomization.yaml", "kustomization.yml", "Kustomization", "source.yaml"}
_NAMING_PLACES = frozenset({"gitops-ds.yaml", ".gitopsdsignore", "clusters"})

Rendered = Mapping[CommitId, RenderedCommit]


class WantedCause(msgspec.Struct, frozen=True):
    """A template whose commit is not known yet.

    `source` is its digest, `places` are the files and directories that can change it, `file` is its
    own. `before` is
    the record of the template before, None if unknown. A revert restores the template with the
    digest `goal` (None: unknown), the last applied one that was not halted; `skips_before`: the
    one before was halted, or never applied.
    """

    source: str
    places: Set[str]
    before: TemplateCause | None = None
    goal: str | None = None
    skips_before: bool = False
    file: str = ""


def known(bundle: Bundle, state: DeployerState) -> Mapping[Key, TemplateCause]:
    """The records of the templates of a bundle, as far as the state has them."""
    causes = {}
    for manifest in _from_git(bundle):
        source = template_digests.digest(manifest)
        cause = state.causes.get(manifest.key) or _of_history(manifest.key, source, state)
        if cause is not None and cause.source == source:
            causes[manifest.key] = cause
    return causes


def _of_history(key: Key, source: str, state: DeployerState) -> TemplateCause | None:
    """The record of a template by the state of a version that recorded only commits."""
    history = state.templates.get(key, TemplateHistory())
    for known in (history.target, history.applied, history.proof):
        if known is not None and known.source == source and known.commit:
            return TemplateCause(source, known.commit, exact=False)
    return None


def completed(
    bundle: Bundle, causes: Mapping[Key, TemplateCause], head: CommitInfo | None
) -> Mapping[Key, TemplateCause]:
    """The records of all templates of a bundle: `head`, from which it was rendered, gave those
    whose cause is unknown, as far as anyone knows.
    """
    if head is None:
        return causes
    unknown = (manifest for manifest in _from_git(bundle) if manifest.key not in causes)
    return {
        **causes,
        **{
            manifest.key: record(template_digests.digest(manifest), head, (), exact=False)
            for manifest in unknown
        },
    }


def wanted(
    bundle: Bundle, state: DeployerState, live: Live, lost: Set[CommitId] = frozenset()
) -> Mapping[Key, WantedCause]:
    """The DaemonSets whose template has no record; one of a `lost` commit, which left the branch,
    does not count.
    """
    missing, recorded = {}, known(bundle, state)
    for manifest in _from_git(bundle):
        key, source = manifest.key, template_digests.digest(manifest)
        if key in recorded and recorded[key].commit not in lost:
            continue
        before = state.causes.get(key)
        if before is not None and before.source == source:
            before = None
        history = state.templates.get(key, TemplateHistory())
        is_skipped = before is not None and (
            not before.is_applied or _is_halted(before, live, key, history)
        )
        goal = before.source if before is not None and not is_skipped else _proven(history)
        places = template_files.deciding(manifest, bundle)
        file = manifest.origin.base.file
        missing[key] = WantedCause(source, places, before, goal, is_skipped, file)
    return missing


def _proven(history: TemplateHistory) -> str | None:
    in_force = history.proof or history.applied
    return in_force.source or None if in_force is not None else None


def _from_git(bundle: Bundle) -> Sequence[Manifest]:
    every = bundle.manifests.values()
    return [manifest for manifest in every if manifest.key.is_daemonset and manifest.holder is None]


def _is_halted(before: TemplateCause, live: Live, key: Key, history: TemplateHistory) -> bool:
    """Whether the last applied template was halted, or is on hold."""
    metadata: Body = (live.objects.get(key) or {}).get("metadata") or {}
    halted = halted_templates.remembered(metadata, live.targets.get(key, ()), history)
    return any(
        (template.source and template.source == before.source)
        or (template.commit and template.commit == before.commit)
        for template in halted
    )


class BranchLine(msgspec.Struct, frozen=True):
    """The commits of the branch itself after `since` (empty: the newest ones), newest first; `path`
    is the followed folder.
    """

    since: CommitId
    commits: Sequence[BranchCommit]
    path: str = ""

    def candidates(self, places: Set[str]) -> Sequence[BranchCommit]:
        """The commits that can change a template, newest first; all if none touches one of its
        files. Before a commit that may have moved the template to these files, any can.
        """
        found = list[BranchCommit]()
        for number, commit in enumerate(self.commits):
            if file_places.files_at(commit.files_by_place, places, self.path):
                found.append(commit)
                if self._moves(commit, places):
                    return (*found, *self.commits[number + 1 :])
        return found or self.commits

    def with_all_before(self, commits: Sequence[BranchCommit]) -> Sequence[BranchCommit]:
        """The commits, and all of the line before the last of them."""
        return (*commits, *self.commits[self.commits.index(commits[-1]) + 1 :])

    def may_move(self, commit: BranchCommit, places: Set[str]) -> bool:
        """Whether the commit may have moved a template to these files from another one that a
        commit before it changed.
        """
        own = file_places.files_at(commit.files_by_place, places, self.path)
        others = {name for name, change in commit.changes.items() if change.before} - own
        _, *earlier = self.with_all_before((commit,))
        return any(others & one.files for one in earlier)

    def _moves(self, commit: BranchCommit, places: Set[str]) -> bool:
        """Whether other files may have decided the template before the commit: it adds a file, or
        changes one that names others.
        """
        index = commit.files_by_place
        naming = file_places.files_at(index, _NAMING_PLACES, self.path)
        return any(
            not commit.changes[name].before or PurePosixPath(name).name in _NAMING or name in naming
            for name in file_places.files_at(index, places, self.path)
        )

    @property
    def is_direct(self) -> bool:
        """Whether the oldest commit is directly on `since`: false after a rewrite of the branch,
        and if its line has another start.
        """
        return bool(self.commits) and self.commits[-1].info.parents[:1] == (self.since,)


def to_render(
    line: BranchLine, causes: Mapping[Key, WantedCause], rendered: Rendered
) -> tuple[CommitId, ...]:
    """The commits to render next, one at most for each template; none if the causes are known."""
    searches = (_search(line, cause, _of(key, rendered)) for key, cause in causes.items())
    return tuple(dict.fromkeys(search.missing for search in searches if search.missing is not None))


def found(
    line: BranchLine, causes: Mapping[Key, WantedCause], rendered: Rendered
) -> Mapping[Key, TemplateCause]:
    """The records, by the rendered commits. None for a template that no commit of the line
    changed.
    """
    records = {}
    for key, cause in causes.items():
        if record := _search(line, cause, _of(key, rendered)).record:
            records[key] = record
    return records


def _of(key: Key, rendered: Rendered) -> Mapping[CommitId, _Version]:
    """One template by commit."""
    return {
        commit: _Version(one.templates.get(key, ""), one.files.get(key, ""))
        for commit, one in rendered.items()
    }


class _Version(NamedTuple):
    """The digest and the file of a template at a commit; empty without the DaemonSet."""

    digest: str
    file: str


class _Search(msgspec.Struct, frozen=True):
    """The record as far as it is known, and the commit that must be rendered next."""

    record: TemplateCause | None = None
    missing: CommitId | None = None


class _Change(msgspec.Struct, frozen=True):
    """A commit that changed a template, and the digest before it."""

    commit: BranchCommit
    before: str


def _search(line: BranchLine, cause: WantedCause, versions: Mapping[CommitId, _Version]) -> _Search:
    candidates, number = line.candidates(cause.places), 0
    after, changes = cause.source, list[_Change]()
    while number < len(candidates):
        commit, *later = candidates[number : number + 2]
        place = later[0].info.id if later else next(iter(commit.info.parents), None)
        may_differ = later or not line.is_direct or line.may_move(commit, cause.places)
        if cause.before is not None and not may_differ:
            version: _Version | None = _Version(cause.before.source, cause.file)
        else:
            version = _Version("", "") if place is None else versions.get(place)
        if version is None:
            some = tuple(candidate.info.id for candidate in candidates)
            newest = changes[0].commit if changes else candidates[0]
            return _Search(record(cause.source, newest.info, some, exact=False), place)
        if version.file not in ("", cause.file):  # a commit in between may have changed that file
            every = line.with_all_before(candidates[: number + 1])
            if len(every) > len(candidates):
                candidates = every
                continue
        if version.digest != after:
            changes.append(_Change(commit, version.digest))
        after, number = version.digest, number + 1
        if changes and (after == cause.goal or (cause.goal is None and not line.since)):
            break
    return _Search(_record(line, cause, changes) if changes else None)


def _record(line: BranchLine, cause: WantedCause, changes: Sequence[_Change]) -> TemplateCause:
    goal = changes[-1].before if cause.goal is None else cause.goal
    # a revert need not go further back than to the last commit with the template
    last = next((n for n, one in enumerate(changes) if one.before == goal), len(changes) - 1)
    commits = tuple(change.commit.info.id for change in changes[: last + 1])
    is_exact, skipped = True, cause.before if cause.skips_before else None
    if skipped is not None and changes[last].before == skipped.source:
        # A revert undoes the commits of the template before too.
        commits = tuple(dict.fromkeys((*commits, *map(CommitId, skipped.commits))))
        is_exact = skipped.exact
    elif not line.since and changes[last].before != goal:
        commits = ()
    return record(cause.source, changes[0].commit.info, commits, exact=is_exact)


def record(
    source: str, info: CommitInfo, commits: tuple[CommitId, ...], *, exact: bool = True
) -> TemplateCause:
    """The record of a template with this commit."""
    at = info.committed.timestamp()
    return TemplateCause(source, info.id, info.author, at, info.subject, commits, exact)
