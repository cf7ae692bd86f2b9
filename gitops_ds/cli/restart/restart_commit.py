"""A restart by a commit: the annotation of `kubectl rollout restart`, written to the template's own
file.

https://kubernetes.io/docs/reference/kubectl/generated/kubectl_rollout/kubectl_rollout_restart/
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import PurePosixPath

from gitops_ds.cli.commits import git_commit
from gitops_ds.cli.commits.git_commit import Proposed, WriteTarget
from gitops_ds.cli.parameters.options import CommitTargetArgs
from gitops_ds.core import errors
from gitops_ds.core.objects import CommitId, Key
from gitops_ds.core.sources.bundle import Manifest
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.core.values import replace
from gitops_ds.deploy.pipeline import open_repository
from gitops_ds.source.render import bundle as rendering
from gitops_ds.status import agents
from gitops_ds.yaml import edit as yaml_edit
from gitops_ds.yaml.edit import Edit
from gitops_ds.yaml.provenance import lookup

RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
_WHERE = ("spec", "template", "metadata", "annotations", RESTARTED_AT)


async def restart(
    target: WriteTarget, name: str, args: CommitTargetArgs, reason: str
) -> tuple[Proposed, Key]:
    """The commit, and the DaemonSet that it restarts.

    Raises UsageError for a DaemonSet outside of Git, Refused if the commit would change other
    objects.
    """
    named, proposal, keys = target.repository, target.proposal, list[Key]()
    async with git_commit.opened(named, proposal) as repository:
        by = git_commit.signature(named, proposal)

        async def build(tip: CommitId) -> CommitId:
            snapshot = await open_repository.snapshot_of(repository, tip, named.path)
            manifest = _find(snapshot, name, args)
            keys.append(manifest.key)
            edited = _edited(snapshot, manifest, by.at.astimezone(UTC))
            _verify(snapshot, edited, manifest, args)
            files = {
                (PurePosixPath(named.path) / path).as_posix(): data for path, data in edited.items()
            }
            why = f"\n\n{reason}" if reason else ""
            message = f"Restart {manifest.key}{why}\n"
            return await repository.commit_files(tip, files, message, by)

        return await git_commit.propose(repository, proposal, build), keys[-1]


def _find(snapshot: SourceTree, named: str, args: CommitTargetArgs) -> Manifest:
    name = agents.name_of(named)
    manifests = rendering.render(snapshot, cluster=args.cluster, namespace=args.namespace).manifests
    matches = [
        manifest
        for key, manifest in manifests.items()
        if key.is_daemonset and key.name == name and args.namespace in ("", key.namespace)
    ]
    if not matches:
        raise errors.UsageError(
            f"the repository has no DaemonSet {name}: `gitops-ds render` prints its objects"
        )
    if len(matches) > 1:
        spaces = ", ".join(manifest.key.namespace for manifest in matches)
        raise errors.UsageError(f"{name} is in the namespaces {spaces}: choose one with -n")
    return matches[0]


def _edited(
    snapshot: SourceTree, manifest: Manifest, now: datetime
) -> Mapping[PurePosixPath, bytes]:
    """The file of the template with the annotation in it."""
    pointer = lookup.pointers(manifest.origin, _WHERE)[0]
    file = PurePosixPath(pointer.file)
    if pointer.line or file not in lookup.sources(snapshot):
        raise errors.Refused(
            f"{manifest.key} is from a chart or a kustomization ({pointer.file}): change one "
            "of its values to restart it"
        )
    edit = Edit(pointer.document, pointer.path, now.strftime("%Y-%m-%dT%H:%M:%SZ"), make=True)
    try:
        return {file: yaml_edit.apply(snapshot.files[file], [edit])}
    except ValueError as error:
        raise errors.Refused(
            f"{pointer.file}: the annotation {RESTARTED_AT} can't be written there: {error}"
        ) from error


def _verify(
    snapshot: SourceTree,
    edited: Mapping[PurePosixPath, bytes],
    manifest: Manifest,
    args: CommitTargetArgs,
) -> None:
    """Raises Refused unless the commit restarts the DaemonSet, and changes only variants of its
    agent.
    """
    before, after = (
        rendering.render(side, cluster=args.cluster, namespace=args.namespace).manifests
        for side in (snapshot, replace(snapshot, files={**snapshot.files, **edited}))
    )
    changed = {
        key
        for key in {*before, *after}
        if key not in before or key not in after or before[key].digest != after[key].digest
    }
    siblings = {
        key
        for key, other in before.items()
        if key.is_daemonset and manifest.agent and other.agent == manifest.agent
    }
    if manifest.key not in changed:
        raise errors.Refused(
            f"the annotation {RESTARTED_AT} in {manifest.origin.base.file} does not reach "
            f"{manifest.key}"
        )
    if others := changed - siblings - {manifest.key}:
        named = ", ".join(map(str, sorted(others)))
        raise errors.Refused(
            f"{manifest.origin.base.file} also makes {named}: a restart by a commit would change "
            "these as well"
        )
