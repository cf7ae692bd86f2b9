"""The history of a DaemonSet: the commits of its ControllerRevisions, and a commit that restores
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

import msgspec

from gitops_ds import errors
from gitops_ds.apimachinery import defaults, revisions, timestamps
from gitops_ds.commands.commits import backport
from gitops_ds.commands.commits.backport import BackportOptions
from gitops_ds.fleet import halt_story
from gitops_ds.fleet.agents import Agent, when
from gitops_ds.git.commit_writer import CommitReason
from gitops_ds.git.repository import Repository
from gitops_ds.model import names
from gitops_ds.model.live import Revision
from gitops_ds.model.objects import CommitId, short, show_path, template_of
from gitops_ds.model.sources.source_tree import CommitInfo, SourceTree
from gitops_ds.pipeline import open_repository
from gitops_ds.plan import diff
from gitops_ds.render import bundle as rendering

LOOK_BACK = 1000  # commits


async def history(agent: Agent, repository: Repository | None) -> list[dict[str, Any]]:
    """The revisions, oldest first, each with its commit, and with author and time if Git is
    available.
    """
    current, counts, entries = agent.current, agent.nodes_by_hash(), []
    for revision in agent.history:
        commit = agent.commit_of(revision)
        info = await _info(repository, commit)
        annotations = revisions.annotations_of(revision)
        cause = info.subject if info else annotations.get(names.CHANGE_CAUSE, "")
        entries.append(
            {
                "revision": revision.number,
                "name": revision.name,
                "hash": revision.hash,
                "commit": commit,
                "author": info.author if info else "",
                "committed": when(info.committed) if info else "",
                "changeCause": cause,
                "nodes": counts[revision.hash],
                "current": current is not None and revision.name == current.name,
            }
        )
    return entries


async def halts(agent: Agent, repository: Repository | None) -> list[dict[str, Any]]:
    """The halted rollouts, oldest first, each with its commit and the one that replaced it."""
    return [
        {
            **await _commit(repository, one.commit),
            "haltedAt": timestamps.text(one.at),
            "stage": one.stage,
            "reason": one.reason,
            "nodes": [
                {"name": node.node, "reason": node.reason, "message": node.message}
                for node in one.nodes
            ],
            "replacedBy": await _commit(repository, one.replaced_by) if one.replaced_by else None,
        }
        for one in halt_story.of(agent)
    ]


async def _commit(repository: Repository | None, commit: str) -> dict[str, str]:
    info = await _info(repository, commit)
    return {
        "commit": commit,
        "author": info.author if info else "",
        "committed": when(info.committed) if info else "",
        "changeCause": info.subject if info else "",
    }


async def _info(repository: Repository | None, commit: str) -> CommitInfo | None:
    if repository is None or not commit or template_of(commit):
        return None
    try:
        await repository.fetch(CommitId(commit))
        return await repository.info(CommitId(commit))
    except errors.SourceError:  # a rewritten branch: the number and the commit are still true
        return None


def revision_of(agent: Agent, number: int) -> Revision:
    """The revision with that number. Raises UsageError with the existing numbers."""
    for revision in agent.history:
        if revision.number == number:
            return revision
    numbers = ", ".join(str(revision.number) for revision in agent.history) or "none"
    raise errors.UsageError(f"{agent.key} has no revision {number}; it has {numbers}")


def revision_before(agent: Agent) -> Revision:
    """The newest revision with another template than the agent's, as for `kubectl rollout undo`.

    Raises UsageError without one.
    """
    earlier = [revision for revision in agent.history if revision is not agent.current]
    if not earlier:
        raise errors.UsageError(f"{agent.key} has no revision to go back to")
    return earlier[-1]


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
            commit = await repository.revert(tip, [single], why)
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
        before, after = [await repository.snapshot(one, "") for one in (parents[0], commit)]
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
