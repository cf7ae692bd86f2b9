"""The refs of cluster reports: one ref for each cluster, to a commit with one file.

A ref below `refs/gitops-ds/` is neither a branch nor a tag: a clone does not contain it, and forges
start no CI for it. The commit has no parent, so replaced reports have no history.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gitops_ds.core.objects import CommitId, digest_of
from gitops_ds.core.rollouts.cluster_report import LONGEST
from gitops_ds.source.git import commit_writer, object_reader, remote, revision
from gitops_ds.source.git.bare_repository import BareRepository
from gitops_ds.source.git.commit_writer import Signature

FILE = "cluster.json"
_PREFIX = "refs/gitops-ds/clusters"
# Replaced reports are deleted from the local copy when it has that many loose objects.
_LOOSE = 2000


class ReportRef(msgspec.Struct, frozen=True):
    """The report of one cluster in Git: the commit of its ref, and the file."""

    cluster: str
    commit: CommitId
    data: bytes


def ref_of(cluster: str, path: str) -> str:
    """The ref of a cluster; `path` is the followed folder of the repository. Raises UsageError for
    a name that is invalid in a ref.
    """
    ref = f"{_folder(path)}{cluster}"
    revision.check_ref_name(ref)
    return ref


def fetch(bare: BareRepository, path: str, clusters: Sequence[str]) -> tuple[ReportRef, ...]:
    """The reports of these clusters on the server, by one request; empty if the file is missing or
    longer than LONGEST. Raises SourceError.
    """
    remote.fetch_refs(bare, _folder(path))
    _prune(bare)
    rows = bare.run("for-each-ref", "--format=%(objectname) %(refname)", _folder(path)).text
    refs = []
    for row in rows.splitlines():
        id, _, ref = row.partition(" ")
        name = ref.removeprefix(_folder(path))
        if name in clusters:
            commit = revision.commit_id(id)
            data = object_reader.file(bare, commit, FILE, LONGEST)
            refs.append(ReportRef(name, commit, data or b""))
    return tuple(refs)


def publish(
    bare: BareRepository, ref: str, report: ReportRef, expect: CommitId | None, by: Signature
) -> CommitId:
    """Replaces the report in a ref; the commit of the new one.

    Raises PushRejected if the ref is not `expect` (None: it must not exist), and other
    SourceErrors.
    """
    message = f"Report of cluster {report.cluster}\n"
    commit = commit_writer.commit_alone(bare, FILE, report.data, message, by)
    if commit != expect:
        remote.push_ref(bare, commit, ref, expect)
    return commit


def _folder(path: str) -> str:
    """The folder of refs: several folders of one repository, each with its own clusters, have
    separate refs.
    """
    return f"{_PREFIX}.{digest_of(path)[:8]}/" if path else f"{_PREFIX}/"


def _prune(bare: BareRepository) -> None:
    """Deletes the objects of earlier reports from the local copy, once there are many."""
    loose = bare.run("count-objects").text.partition(" ")[0]
    if loose.isdecimal() and int(loose) > _LOOSE:
        bare.run("prune", "--expire=1.hour.ago", purpose="clean the copy of")
