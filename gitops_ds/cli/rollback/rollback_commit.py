"""Rollback: finds the commit to restore, and builds, shows or pushes the commit that restores
it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import PurePosixPath

import msgspec

from gitops_ds.cli.commits import backport, git_commit
from gitops_ds.cli.commits.backport import BackportOptions
from gitops_ds.cli.commits.git_commit import Proposal, Proposed
from gitops_ds.cli.history import revision_history
from gitops_ds.core import errors
from gitops_ds.core.health import HealthState
from gitops_ds.core.live import Revision
from gitops_ds.core.objects import CommitId, short, show_path
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.core.values import replace
from gitops_ds.deploy.pipeline import open_repository
from gitops_ds.kube.apimachinery import defaults, revisions
from gitops_ds.ownership import diff
from gitops_ds.rollouts.causes import template_digests
from gitops_ds.source.git import revision
from gitops_ds.source.git.commit_writer import CommitReason
from gitops_ds.source.git.repository import Repository
from gitops_ds.source.render import bundle as rendering
from gitops_ds.status.agents import Agent

LOOK_BACK = 1000  # commits


class RollbackOptions(msgspec.Struct, frozen=True):
    """The target (at most one of the two; by default the previous revision), the reason, and
    whether it is pushed.
    """

    to_revision: int | None
    to_commit: str | None
    reason: str = ""
    cluster: str = ""
    proposal: Proposal = msgspec.field(default_factory=Proposal)


class RestoringCommit(msgspec.Struct, frozen=True):
    """A commit that restores a template: it reverts one commit, restores files of an older one, or
    edits values.
    """

    commit: CommitId
    reverts: CommitId | None = None
    restores: CommitId | None = None

    def __str__(self) -> str:
        """As a phrase: `reverts 156dd9421871`."""
        if self.reverts:
            return f"reverts {short(self.reverts)}"
        return (
            f"restores the files of {short(self.restores)}"
            if self.restores
            else "edits the values that differ"
        )


class RestoredTemplate(msgspec.Struct, frozen=True):
    """The template that is restored: its revision, None for a commit that was named, its images,
    its commit and the author; empty if unknown.
    """

    revision: int | None
    images: tuple[str, ...]
    commit: str
    author: str

    def __str__(self) -> str:
        """`revision 3 (registry.example.com/agent:1), commit 156dd9421871 by Ada <…>`."""
        images = f" ({', '.join(self.images)})" if self.images else ""
        number = f"revision {self.revision}{images}" if self.revision is not None else ""
        author = f" by {self.author}" if self.author else ""
        commit = f"commit {short(self.commit)}{author}" if self.commit else ""
        return ", ".join(filter(None, (number, commit)))


class RollbackResult(msgspec.Struct, frozen=True):
    """The restoring commit, its proposal, and what it restores."""

    way: RestoringCommit
    proposed: Proposed
    restored: RestoredTemplate


async def roll_back(
    named: open_repository.RepositoryRef, agent: Agent, options: RollbackOptions
) -> RollbackResult:
    """Builds the commit on the branch's tip; pushes it if requested."""
    async with git_commit.opened(named, options.proposal) as repository:
        return await roll_back_in(repository, named, agent, options)


async def roll_back_in(
    repository: Repository,
    named: open_repository.RepositoryRef,
    agent: Agent,
    options: RollbackOptions,
) -> RollbackResult:
    """As `roll_back`, in an open repository. Raises Refused without a named target if the branch is
    ahead with another template of the agent, which is not applied.
    """
    is_named = options.to_revision is not None or options.to_commit is not None
    if not is_named:
        options = replace(options, to_revision=_default(agent).number)
    goal = await _wanted(repository, agent, options)
    why = CommitReason(
        options.reason or _reason(agent, options), git_commit.signature(named, options.proposal)
    )
    ways: list[RestoringCommit] = []

    async def build(tip: CommitId) -> CommitId:
        if not is_named:
            await _check_applied(repository, named.path, tip, agent, goal)
        ways.append(await way_back(repository, named.path, tip, goal, why))
        return ways[-1].commit

    proposed = await git_commit.propose(repository, options.proposal, build)
    return RollbackResult(ways[-1], proposed, await _restored(repository, goal))


def _default(agent: Agent) -> Revision:
    """The revision to restore: the proven one that runs, while a staged rollout to another one is
    in progress or halted; else the one before.
    """
    if agent.rollout is not None and agent.rollout.target.staged and agent.current is not None:
        return agent.current
    return revision_history.revision_before(agent)


async def _check_applied(
    repository: Repository, inside: str, tip: CommitId, agent: Agent, goal: BackportOptions
) -> None:
    applied = agent.state.causes.get(agent.key)
    if applied is None:
        return
    snapshot = await open_repository.snapshot_of(repository, tip, inside)
    bundle = rendering.render(snapshot, cluster=goal.cluster, namespace=goal.namespace)
    manifest = bundle.manifests.get(agent.key)
    if manifest is not None and template_digests.digest(manifest) != applied.source:
        info = await repository.info(tip)
        raise errors.Refused(
            f"the branch is ahead: up to {short(tip)} ({info.subject}, by {info.author}) it has "
            f"another template of {agent.key}, which is not applied. Revert that commit, or name "
            f"the revision with --to-revision: `gitops-ds history ds/{agent.key.name}` lists them"
        )


async def _restored(repository: Repository, goal: BackportOptions) -> RestoredTemplate:
    author, earlier = "", goal.template
    if goal.target is not None:
        with contextlib.suppress(errors.SourceError):
            await repository.fetch(goal.target)
            author = (await repository.info(goal.target)).author
    spec = (earlier.template.get("spec") or {}) if earlier is not None else {}
    images = tuple(str(container.get("image") or "") for container in spec.get("containers") or ())
    number = earlier.number if earlier is not None else None
    return RestoredTemplate(number, images, goal.target or "", author)


async def _wanted(
    repository: Repository, agent: Agent, options: RollbackOptions
) -> BackportOptions:
    cluster = options.cluster or agent.state.cluster
    if options.to_commit is not None:
        target = await repository.tip(revision.parse(options.to_commit))
        return BackportOptions(agent.key, target, None, cluster, agent.key.namespace)
    earlier = revision_history.revision_of(agent, options.to_revision or 0)
    commit = agent.commit_of(earlier)
    return BackportOptions(
        agent.key, CommitId(commit) if commit else None, earlier, cluster, agent.key.namespace
    )


def _reason(agent: Agent, options: RollbackOptions) -> str:
    where = (
        f"revision {options.to_revision}"
        if options.to_revision is not None
        else f"commit {options.to_commit}"
    )
    text = f"Back to {where} of {agent.key}."
    ill = agent.health.state in (HealthState.DEGRADED, HealthState.FAILED)
    return text if not ill else f"{text}\n\n{agent.health.state}: {agent.health.message}"


async def way_back(
    repository: Repository, inside: str, tip: CommitId, options: BackportOptions, why: CommitReason
) -> RestoringCommit:
    """Builds the commit on the tip, unpushed: a revert if a single commit is reverted, else the
    earlier files of the agent.

    A template without a commit (a manual change of the cluster) is written to the agent's own file,
    with comments kept. Raises Refused, with the other required changes, if none of these restores
    the template.
    """
    try:
        if options.target is None:
            raise errors.Refused(
                f"the commit of that revision of {options.key} was not recorded: name it with "
                "--to-commit"
            )
        return await _by_history(repository, inside, tip, (options, options.target), why)
    except errors.Refused:
        if options.template is None:
            raise
        files = backport.files(await open_repository.snapshot_of(repository, tip, inside), options)
        if files is None:
            raise
        if not files:
            raise errors.Refused(
                f"Git has the template of revision {options.template.number} of {options.key}: "
                "nothing to restore"
            ) from None
    subject = f"Restore revision {options.template.number} of {options.key}"
    message = f"{subject}\n\n{why.reason}\n"
    edited = {_in_repository(inside, path): data for path, data in files.items()}
    commit = await repository.commit_files(tip, edited, message, why.by)
    await _verify(repository, inside, commit, options)
    return RestoringCommit(commit)


async def _by_history(
    repository: Repository,
    inside: str,
    tip: CommitId,
    goal: tuple[BackportOptions, CommitId],
    why: CommitReason,
) -> RestoringCommit:
    options, target = goal
    await repository.fetch(target)
    then, now = [
        await open_repository.snapshot_of(repository, commit, inside) for commit in (target, tip)
    ]
    folder = _folder(then, options)
    changed = _changed(then, now, folder)
    if not changed:
        raise errors.Refused(f"{folder} is unchanged since {short(target)}: nothing to restore")
    since = await repository.log(target, tip, LOOK_BACK)
    single = await _single(repository, inside, [info.id for info in since], folder)
    commit = None
    if single is not None:
        try:
            commit = await repository.revert(tip, {single: None}, why)
        except errors.Refused:  # a later commit changed the same lines: restore the files instead
            single = None
    if commit is None:
        commit = await repository.restore(
            tip, target, [_in_repository(inside, path) for path in changed], why
        )
    await _verify(repository, inside, commit, options)
    return RestoringCommit(commit, single, None if single else target)


def _folder(snapshot: SourceTree, options: BackportOptions) -> PurePosixPath:
    """The path of the agent: its folder under agents/, else its file."""
    manifest = rendering.render(
        snapshot, cluster=options.cluster, namespace=options.namespace
    ).manifests.get(options.key)
    if manifest is None:
        raise errors.Refused(f"{options.key} is not in the commit to restore")
    file = PurePosixPath(manifest.origin.base.file)
    return (
        PurePosixPath(*file.parts[:2])
        if file.parts[0] == "agents" and len(file.parts) > 2
        else file
    )


def _changed(then: SourceTree, now: SourceTree, folder: PurePosixPath) -> list[PurePosixPath]:
    paths = {
        path for path in (*then.files, *now.files) if path == folder or path.is_relative_to(folder)
    }
    return sorted(path for path in paths if then.files.get(path) != now.files.get(path))


async def _single(
    repository: Repository, inside: str, since: Sequence[CommitId], folder: PurePosixPath
) -> CommitId | None:
    """The only commit since then that changed the agent, if it changed nothing else."""
    touching = []
    for commit in since:
        parents = (await repository.info(commit)).parents
        if len(parents) != 1:
            return None
        before, after = [await repository.snapshot(side, "") for side in (parents[0], commit)]
        changed = _changed(before, after, PurePosixPath())
        whole = PurePosixPath(inside) / folder
        inner = [path for path in changed if path == whole or path.is_relative_to(whole)]
        if inner:
            touching.append((commit, len(inner) == len(changed)))
    return touching[0][0] if len(touching) == 1 and touching[0][1] else None


def _in_repository(inside: str, path: PurePosixPath) -> str:
    return (PurePosixPath(inside) / path).as_posix()


async def _verify(
    repository: Repository, inside: str, commit: CommitId, options: BackportOptions
) -> None:
    """Renders the commit: the template must be the requested one."""
    if options.template is None:
        return
    after = await open_repository.snapshot_of(repository, commit, inside)
    manifest = rendering.render(
        after, cluster=options.cluster, namespace=options.namespace
    ).manifests.get(options.key)
    template = ((manifest.body.get("spec") or {}).get("template") or {}) if manifest else {}
    mine, theirs = (
        defaults.defaulted_template(template),
        defaults.defaulted_template(options.template.template),
    )
    if not revisions.same_template(mine, theirs):
        where = ", ".join(show_path(change.path) for change in diff.compare(theirs, mine)[:5])
        raise errors.Refused(
            f"the agent's own files do not restore revision {options.template.number} ({where} "
            "differ): "
            "values outside its folder changed too; revert those commits with git revert, or name "
            "another --to-commit"
        )
