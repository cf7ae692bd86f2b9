"""A commit of drift: it sets the changed values of the cluster in the files, with comments kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from gitops_ds.cli.commits import backport, git_commit
from gitops_ds.cli.commits.git_commit import Proposed, WriteTarget
from gitops_ds.cli.parameters.options import CommitTargetArgs
from gitops_ds.cli.plan import planning
from gitops_ds.cli.plan.planning import ApplyTarget
from gitops_ds.core import errors
from gitops_ds.core.change import Drifted, FieldChange
from gitops_ds.core.objects import CommitId, Key, show_path
from gitops_ds.core.sources.bundle import Manifest
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.core.values import replace
from gitops_ds.deploy.pipeline import open_repository
from gitops_ds.deploy.plan import drift
from gitops_ds.ownership.options import ApplyOptions
from gitops_ds.source.render import bundle as rendering


async def read(named: open_repository.RepositoryRef, target: ApplyTarget) -> Mapping[Key, Drifted]:
    """The drift since the last apply, by object, compared with the branch's tip, without writes."""
    snapshot = await open_repository.snapshot(named, None, committed=True)
    request = planning.PlanRequest(named, snapshot, target, ApplyOptions(is_shown_only=True))
    async with planning.drafted(request) as draft:
        return draft.plan.drifted


async def take(
    target: WriteTarget, key: Key, drifted: Drifted, args: CommitTargetArgs, reason: str
) -> Proposed:
    """The commit of the drift of one object.

    Raises Refused if a difference is not a single value in one place.
    """
    changes = tuple(FieldChange(change.path, change.new, change.old) for change in drifted.fields)
    if not changes:
        raise errors.Refused(
            f"{key} was deleted in the cluster: remove its file, or apply it again"
        )
    named, proposal = target.repository, target.proposal
    async with git_commit.opened(named, proposal) as repository:
        by = git_commit.signature(named, proposal)

        async def build(tip: CommitId) -> CommitId:
            snapshot = await open_repository.snapshot_of(repository, tip, named.path)
            edited = _edited(snapshot, key, changes, args)
            files = {
                (PurePosixPath(named.path) / path).as_posix(): data for path, data in edited.items()
            }
            why = reason or f"It was {drift.words(drifted)}."
            message = f"Commit the change of {key}\n\n{why}\n"
            return await repository.commit_files(tip, files, message, by)

        return await git_commit.propose(repository, proposal, build)


def _edited(
    snapshot: SourceTree, key: Key, changes: tuple[FieldChange, ...], args: CommitTargetArgs
) -> Mapping[PurePosixPath, bytes]:
    manifest = _find(snapshot, key, args)
    files = backport.edited(snapshot, manifest, changes)
    where = ", ".join(show_path(change.path) for change in changes[: drift.SHOWN])
    if files is None:
        raise errors.Refused(f"{key}: {where} has no single place in its files: edit them manually")
    after = replace(snapshot, files={**snapshot.files, **files})
    if not files or not backport.has_values(_find(after, key, args), changes):
        raise errors.Refused(
            f"{key}: its files can't be edited to match the cluster ({where}): edit them manually"
        )
    return files


def _find(snapshot: SourceTree, key: Key, args: CommitTargetArgs) -> Manifest:
    rendered = rendering.render(
        snapshot, cluster=args.cluster, namespace=args.namespace
    ).manifests.get(key)
    if rendered is None:
        raise errors.Refused(f"{key} is no longer in Git")
    return rendered
