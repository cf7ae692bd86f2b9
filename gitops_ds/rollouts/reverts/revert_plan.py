"""The revert after a halted rollout: which commits, and what that changes.

It takes back the commits that turned the template before into the halted one, or the part of them
that is the agent's own. What it changes is judged by what it renders to: a revert that changes more
than those commits did, or takes back a proven template, is for a person to decide.

A commit is reverted once: the message of its revert has it in a trailer, which every cluster and
every later start reads. A trailer counts only with the content of a revert. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set

import msgspec

from gitops_ds.core.objects import CommitId, Key, short
from gitops_ds.core.rollouts.halted_rollout import BranchCommit, HaltedRollout
from gitops_ds.core.rollouts.template_cause import RenderedCommit
from gitops_ds.core.sources import file_places
from gitops_ds.rollouts.causes.template_causes import BranchLine, Rendered

TRAILER = "Gitops-Ds-Reverts"
SHOWN = 20  # nodes in a message
_TRAILER = re.compile(rf"^{TRAILER}: ([0-9a-f]{{40,64}})\s*$", re.MULTILINE)


class RevertedCommit(msgspec.Struct, frozen=True):
    """A commit to revert: only its changes of `files`, None for all of them."""

    commit: CommitId
    files: tuple[str, ...] | None = None


# The commits to revert, newest first.
RevertPlan = tuple[RevertedCommit, ...]


class NoRevert(msgspec.Struct, frozen=True):
    """Why no revert is written. `settled`: nothing is left to do, otherwise a person must act."""

    reason: str
    settled: bool = False


def to_render(halted: HaltedRollout, line: BranchLine, tip: CommitId) -> Sequence[CommitId]:
    """The commits whose content decides about the revert: the tip, those to revert with the ones
    before them, and those that name one of them as reverted.
    """
    bad = [commit for commit in line.commits if commit.info.id in halted.commits]
    around = [id for commit in bad for id in (commit.info.id, *commit.info.parents[:1])]
    naming = [reverting.info.id for reverting in _naming(halted, line)]
    return tuple(dict.fromkeys((tip, *around, *naming)))


def obstacle(halted: HaltedRollout, line: BranchLine, rendered: Rendered) -> NoRevert | None:
    """Why nothing is reverted: a commit changed the agent already, or the branch was rewritten."""
    ids = [commit.info.id for commit in line.commits]
    if lost := next((commit for commit in halted.commits if commit not in ids), None):
        return NoRevert(f"commit {short(lost)} is not on the branch: the branch was rewritten")
    tip = rendered.get(ids[0])
    if tip is None:
        return NoRevert(f"commit {short(ids[0])} cannot be rendered")
    if tip.templates.get(halted.daemonset) != halted.template:
        return NoRevert(f"a commit up to {short(ids[0])} changes the agent", settled=True)
    for reverting in _naming(halted, line):
        then = rendered.get(reverting.info.id)
        if then is not None and then.templates.get(halted.daemonset) != halted.template:
            return NoRevert(f"commit {short(reverting.info.id)} reverted it", settled=True)
    return None


def _naming(halted: HaltedRollout, line: BranchLine) -> Iterator[BranchCommit]:
    """The commits whose message names one of those as reverted. The name is not sufficient: such a
    commit may revert nothing.
    """
    bad = set(halted.commits)
    return (commit for commit in line.commits if bad.intersection(reverted(commit.message)))


def plans(halted: HaltedRollout, line: BranchLine) -> tuple[RevertPlan, ...]:
    """The plans to try, the one with the fewest files first: the files of the agent itself, all
    that decide its template, the whole commits.
    """
    bad = [commit for commit in line.commits if commit.info.id in halted.commits]
    scopes: list[Set[str] | None] = [halted.own, halted.files, None]
    found = dict.fromkeys(_plan(bad, scope, line.path) for scope in scopes)
    return tuple(plan for plan in found if plan)


def _plan(commits: Sequence[BranchCommit], places: Set[str] | None, path: str) -> RevertPlan:
    plan = []
    for commit in commits:
        index = commit.files_by_place
        found = commit.files if places is None else file_places.files_at(index, places, path)
        files = tuple(sorted(found))
        if files:
            plan.append(
                RevertedCommit(commit.info.id, None if len(files) == len(commit.files) else files)
            )
    return tuple(plan)


def goal(halted: HaltedRollout, line: BranchLine, rendered: Rendered) -> str | None:
    """The digest of the template before the commits to revert; None if it is unknown."""
    oldest = [commit for commit in line.commits if commit.info.id in halted.commits][-1].info
    before = rendered.get(oldest.parents[0]) if oldest.parents else None
    return None if before is None else before.templates.get(halted.daemonset)


class RevertEffect(msgspec.Struct, frozen=True):
    """What a revert changes beside the template of the halted rollout: objects that the reverted
    commits did not change (`foreign`), DaemonSets whose proven template it takes back (`proven`),
    and the `other` objects, which the commits changed too.
    """

    foreign: tuple[Key, ...] = ()
    proven: tuple[Key, ...] = ()
    other: tuple[Key, ...] = ()

    @property
    def concern(self) -> str:
        """Why a person must decide; empty if it may be pushed."""
        parts = []
        if self.foreign:
            names = ", ".join(map(str, self.foreign[:SHOWN]))
            parts.append(f"it would also change {names}, which the reverted commits did not change")
        if self.proven:
            names = ", ".join(map(str, self.proven[:SHOWN]))
            parts.append(f"it would also take back the proven template of {names}")
        return "; ".join(parts)


def effect(
    halted: HaltedRollout,
    plan: RevertPlan,
    line: BranchLine,
    rendered: Rendered,
    proven: Mapping[Key, str],
) -> RevertEffect:
    """The effect of a revert; `rendered` has it as REVERT. `proven` are the digests of the proven
    templates of DaemonSets.
    """
    before, after = rendered[line.commits[0].info.id], rendered[REVERT]
    changed = _changed(before, after) - {halted.daemonset}
    infos = {commit.info.id: commit.info for commit in line.commits}
    theirs = set[Key]()
    for part in plan:
        parents = infos[part.commit].parents
        earlier = rendered.get(parents[0]) if parents else None
        if (later := rendered.get(part.commit)) is not None and earlier is not None:
            theirs |= _changed(earlier, later)
    taken = {
        key
        for key in changed
        if (template := before.templates.get(key)) is not None
        and template == proven.get(key)
        and after.templates.get(key) != template
    }
    foreign = changed - theirs
    return RevertEffect(
        tuple(sorted(foreign)),
        tuple(sorted(taken - foreign)),
        tuple(sorted(changed & theirs - taken)),
    )


REVERT = CommitId("")  # the revert itself, among rendered commits


def _changed(before: RenderedCommit, after: RenderedCommit) -> set[Key]:
    keys = before.manifests.keys() | after.manifests.keys()
    return {key for key in keys if before.manifests.get(key) != after.manifests.get(key)}


def reverted(message: str) -> tuple[CommitId, ...]:
    """The commits that a commit message names as reverted by gitops-ds."""
    return tuple(CommitId(id) for id in _TRAILER.findall(message))


def trailers(halted: HaltedRollout, plan: RevertPlan) -> tuple[str, ...]:
    """The trailers of the commit message: every reverted commit."""
    commits = dict.fromkeys((*(step.commit for step in plan), halted.commit))
    return tuple(f"{TRAILER}: {commit}" for commit in commits)
