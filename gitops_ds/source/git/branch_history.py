"""What the commits of a branch changed: the approvals in their trailers, their files, and whether
one only restores an earlier content.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from gitops_ds.core import errors
from gitops_ds.core.objects import CommitId, short
from gitops_ds.core.rollouts.halted_rollout import BranchCommit, FileChange
from gitops_ds.core.rollouts.staged_rollout import TRAILER
from gitops_ds.core.sources.source_tree import CommitInfo
from gitops_ds.source.git import commit_writer, object_reader, tree
from gitops_ds.source.git.bare_repository import BareRepository
from gitops_ds.source.git.commit_writer import Signature

# Of all messages and lists of files of some commits, as git prints them; as objects they take four
# times as much. They belong to what each repository may use at any time (`sandbox.memory`).
MOST_BYTES: Final = 3 << 20
_BYTES_OF_CHARACTER: Final = 4  # at most
MOST = 100  # commits with the trailer, the newest
_FORMAT = f"%H%x1f%(trailers:key={TRAILER},valueonly,unfold,separator=%x1f)"


class ApprovalCommit(msgspec.Struct, frozen=True):
    """A commit and the values of its trailers; nothing about its signature is known."""

    id: CommitId
    values: tuple[str, ...]


class ChangedFiles(msgspec.Struct, frozen=True):
    """A commit, the files that differ from its first parent, and its parents."""

    id: CommitId
    files: frozenset[str]
    parents: tuple[CommitId, ...] = ()


def approval_commits(
    bare: BareRepository, commit: CommitId, tip: CommitId
) -> tuple[ApprovalCommit, ...]:
    """The commit and its descendants up to the tip that have the trailer, newest first.

    None if the tip is not a descendant of the commit.
    """
    if not object_reader.is_ancestor(bare, commit, tip):
        return ()
    common = ("rev-list", "--no-commit-header", f"--format={_FORMAT}", f"--max-count={MOST}")
    grep = ("--regexp-ignore-case", f"--grep=^{TRAILER}:")
    later = bare.run(*common, *grep, "--ancestry-path", f"{commit}..{tip}").text
    itself = bare.run(*common, *grep, "--no-walk", commit).text
    rows = [row.split("\x1f") for row in (later + "\n" + itself).splitlines() if row]
    commits = (ApprovalCommit(CommitId(id), tuple(filter(None, values))) for id, *values in rows)
    return tuple(commit_row for commit_row in commits if commit_row.values)


def brought(
    bare: BareRepository,
    since: CommitId,
    commit: CommitId,
    limit: int,
    merge: ChangedFiles | None = None,
) -> tuple[ChangedFiles, ...] | None:
    """The commits of the branch itself after `since` up to `commit`, newest first. Of a `merge`
    those that it brought from `commit`, one of its parents, to its first parent.

    None for more than `limit` commits or MOST_BYTES, and if `since` is not in the history of
    `commit`.
    """
    head = commit if merge is None else merge.id
    if not object_reader.has(bare, since) or not object_reader.is_ancestor(bare, since, head):
        return None
    without = (since,) if merge is None else (since, merge.parents[0])
    words = ("rev-list", "--first-parent", "--parents", f"--max-count={limit + 1}", commit)
    rows = bare.run(*words, *(f"^{commit_id}" for commit_id in without)).text.splitlines()
    if len(rows) > limit:
        return None
    result, bytes = list[ChangedFiles](), 0
    for row in rows:
        id, *parents = map(CommitId, row.split())
        changed = _raw_changes(bare, parents[0] if parents else "--root", id)
        bytes += len(changed)
        if bytes > MOST_BYTES:
            return None
        result.append(ChangedFiles(id, frozenset(_parsed(changed)), tuple(parents)))
    return tuple(result)


def commit_approval(
    bare: BareRepository, tip: CommitId, values: Sequence[str], message: str, by: Signature
) -> CommitId:
    """An empty commit on the tip, with these values of the trailer."""
    trailers = "".join(f"\n{TRAILER}: {value}" for value in values)
    return commit_writer.commit_empty(bare, tip, f"{message}\n{trailers}", by)


MOST_CHANGES = 2000  # earlier commits of the branch that changed one of the files
_MOST_CONTENTS = 100_000  # files of commits that are compared


def earlier_files(
    bare: BareRepository, since: CommitId, tip: CommitId, among: Collection[CommitId], path: str
) -> CommitId | None:
    """The newest commit of `among` that has the tip's content of every file which differs between
    `since` and the tip; `since` itself if no file differs. `path` is the followed folder.

    None without one, and if the branch had the content of `since` before that of the tip: then the
    tip repeats a reverted change. Raises RevisionUnknown for a commit that was not fetched.
    """
    for commit in (since, tip):
        object_reader.info(bare, commit)
    files = _differing(bare, since, tip, path)
    if not files:
        return since
    newest_first = _newest_first(bare, among)
    if not newest_first or any("\n" in name for name in files):
        return None
    history = _changing(bare, since, files)
    commits = tuple(dict.fromkeys((tip, since, *newest_first, *history)))
    if len(history) >= MOST_CHANGES or len(commits) * len(files) > _MOST_CONTENTS:
        return None
    contents = _contents(bare, commits, files)
    now, before = contents[tip], contents[since]
    first = next((commit_id for commit_id in history if contents[commit_id] in (now, before)), None)
    if first is None or contents[first] != now:
        return None
    return next((commit_id for commit_id in newest_first if contents[commit_id] == now), None)


def _differing(bare: BareRepository, since: CommitId, tip: CommitId, path: str) -> Sequence[str]:
    """The files below the path that differ, in order."""
    folder = tree.directory(path)
    names = _changes(bare, since, tip)
    return [name for name in names if not folder or name.startswith(f"{folder}/")]


def _newest_first(bare: BareRepository, commits: Iterable[CommitId]) -> Sequence[CommitId]:
    """The commits in the local copy, by date."""
    here = [commit for commit in sorted(commits) if object_reader.has(bare, commit)]
    if not here:
        return ()
    ids = bare.run("rev-list", "--no-walk=sorted", "--end-of-options", *here).text
    return tuple(map(CommitId, ids.split()))


def _changing(bare: BareRepository, until: CommitId, files: Sequence[str]) -> Sequence[CommitId]:
    """The commits of the branch itself that changed one of the files, oldest first."""
    words = ("rev-list", "--first-parent", "--reverse", f"--max-count={MOST_CHANGES}", until, "--")
    ids = bare.run(*words, *files).text  # pathspecs are literal (`hardening`)
    return tuple(map(CommitId, ids.split()))


def _contents(
    bare: BareRepository, commits: Sequence[CommitId], files: Sequence[str]
) -> Mapping[CommitId, tuple[str, ...]]:
    """The blobs of the files in each commit, in one run of git; `missing` without the file."""
    names = "".join(f"{commit}:{name}\n" for commit in commits for name in files)
    request = names.encode("utf-8", "surrogateescape")
    output = bare.run("cat-file", "--batch-check=%(objectname)", input=request)
    rows = [row.rpartition(" ")[2] for row in output.text.split("\n")]
    size = len(files)
    return {one: tuple(rows[n * size : (n + 1) * size]) for n, one in enumerate(commits)}


def branch_commits(
    bare: BareRepository, since: CommitId, until: CommitId, limit: int
) -> tuple[BranchCommit, ...]:
    """The commits reachable from `until` but not from `since`, newest first, at most `limit`."""
    return _with_changes(bare, object_reader.log(bare, since, until, limit))


def line(
    bare: BareRepository, since: CommitId | None, until: CommitId, limit: int
) -> tuple[BranchCommit, ...]:
    """As `branch_commits`, of the branch itself: the first parents of `until`. A merge has all
    changes that it brings. All commits if `since` is None.
    """
    for commit in (since, until):
        if commit is not None:
            object_reader.info(bare, commit)
    between = until if since is None else f"{since}..{until}"
    words = ("rev-list", "--first-parent", f"--max-count={limit}", between)
    ids = map(CommitId, bare.run(*words).text.split())
    return _with_changes(bare, (object_reader.info(bare, id) for id in ids))


def _with_changes(bare: BareRepository, commits: Iterable[CommitInfo]) -> tuple[BranchCommit, ...]:
    """Raises SourceTooLarge if the messages and the lists of files are too long together."""
    result, bytes = list[BranchCommit](), 0
    for commit in commits:
        message = object_reader.text_of(bare.objects.commit(commit.id).message)
        # every file of a first commit
        sides = (commit.parents[0], commit.id) if commit.parents else ("--root", commit.id)
        rows = _raw_changes(bare, *sides)
        bytes += _BYTES_OF_CHARACTER * len(message) + len(rows)
        if bytes > MOST_BYTES:
            raise errors.SourceTooLarge(
                f"the commits of {bare.address.display} up to {short(commit.id)} change too many "
                f"files, or have too long messages: more than {MOST_BYTES >> 20} MiB"
            )
        result.append(BranchCommit(commit, message, _parsed(rows)))
    return tuple(result)


def _changes(bare: BareRepository, before: str, after: str) -> Mapping[str, FileChange]:
    """The files that differ between two commits, in order."""
    return _parsed(_raw_changes(bare, before, after))


def _raw_changes(bare: BareRepository, before: str, after: str) -> bytes:
    words = ("diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", "--no-commit-id")
    return bare.run(*words, before, after).stdout


def _parsed(raw: bytes) -> Mapping[str, FileChange]:
    fields = raw.split(b"\0")
    # `:MODE MODE BLOB BLOB STATUS`, then the name
    rows = zip(fields[::2], fields[1::2], strict=False)
    return {name.decode("utf-8", "surrogateescape"): _change(row) for row, name in rows}


def _change(row: bytes) -> FileChange:
    _, _, before, after, _ = row.decode().split(" ")
    return FileChange(before.strip("0") and before, after.strip("0") and after)
