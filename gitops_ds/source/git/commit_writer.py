"""New commits without a checkout: reverts, restored files, written files. The same input and date
result in the same commit id.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

import msgspec

from gitops_ds.core import errors
from gitops_ds.core.objects import CommitId, short
from gitops_ds.source.git import object_reader, signing, tree
from gitops_ds.source.git.bare_repository import BareRepository
from gitops_ds.source.git.signing import Signing


class Signature(msgspec.Struct, frozen=True):
    """Author and committer, date (with a time zone), and signing key of a commit (None: unsigned).

    `signoff`: the message ends in a Signed-off-by line, which states the Developer Certificate of
    Origin.
    """

    name: str
    email: str
    at: datetime
    signing: Signing | None = None
    signoff: bool = False

    def __post_init__(self) -> None:
        """Raises UsageError for values that a commit object can't contain."""
        if (
            not self.name.strip()
            or re.search(r"[<>\x00-\x1f]", self.name)
            or not re.fullmatch(r"[^<>\s]+", self.email)
        ):
            raise errors.UsageError(
                f"{self.name!r} <{self.email}> is not a valid author; set a name and an e-mail "
                "address"
            )
        if self.at.tzinfo is None:
            raise errors.UsageError("the date of a commit needs a time zone")


class CommitReason(msgspec.Struct, frozen=True):
    """The reason of a revert or restore, for the commit message, its author, and its trailers
    (https://git-scm.com/docs/git-interpret-trailers).
    """

    reason: str
    by: Signature
    trailers: tuple[str, ...] = ()

    @property
    def ending(self) -> str:
        """The last paragraph of the message, with the trailers."""
        return "".join(f"\n{trailer}" for trailer in ("", *self.trailers)) if self.trailers else ""


def revert(
    bare: BareRepository,
    tip: CommitId,
    commits: Mapping[CommitId, Sequence[str] | None],
    why: CommitReason,
) -> CommitId:
    """One revert commit on the tip for each of the commits, in the given order (usually newest
    first): of its changes of the given files, None for all.

    The three-way merge of `git revert`: base the commit, ours the tip, theirs its first parent.
    Raises Refused if files conflict (with their names), if a commit is not in the tip's history, or
    if nothing would change.
    """
    for commit, files in commits.items():
        if not object_reader.is_ancestor(bare, commit, tip):
            raise errors.Refused(
                f"the commit {short(commit)} is not in the history of {short(tip)}, so it can't be "
                "reverted there"
            )
        tip = _revert(bare, tip, commit, files, why)
    return tip


def _revert(
    bare: BareRepository,
    tip: CommitId,
    commit: CommitId,
    files: Sequence[str] | None,
    why: CommitReason,
) -> CommitId:
    commit_info = object_reader.info(bare, commit)
    before = f"{commit_info.parents[0]}^{{tree}}" if commit_info.parents else _empty_tree(bare)
    if files is not None:
        before = _with_files(bare, commit, before, files)
    merged = _merge(bare, base=f"{commit}^{{tree}}", ours=f"{tip}^{{tree}}", theirs=before, why=why)
    if isinstance(merged, list):
        names = ", ".join(merged)
        raise errors.Refused(
            f"reverting {short(commit)} ({commit_info.subject}) conflicts with later changes in "
            f"{names}; "
            "revert the later commits too, or restore the files to an older commit"
        )
    if merged == _tree(bare, tip):
        raise errors.Refused(
            f"reverting {short(commit)} ({commit_info.subject}) changes nothing: it is already "
            "reverted"
        )
    subject, what = f'Revert "{commit_info.subject}"', f"This reverts commit {commit}."
    if files is not None:
        subject = f'Revert a part of "{commit_info.subject}"'
        what = "\n".join(
            (
                f"This reverts the changes of commit {commit} in",
                "",
                *(f"- {file}" for file in files),
            )
        )
        what += "\n\nIts other changes stay."
    message = f"{subject}\n\n{_reason(why)}{what}{why.ending}\n"
    return _commit(bare, merged, tip, message, why.by)


def _with_files(bare: BareRepository, commit: CommitId, before: str, files: Sequence[str]) -> str:
    """The tree of the commit with these files as in the tree `before`."""
    changes: dict[bytes, tuple[str, str] | None] = {}
    for file in files:
        name = _file_name(file)
        changes |= dict.fromkeys((e.name for e in _entries(bare, commit, name)), None)
        changes |= {e.name: (e.mode, e.id) for e in _entries(bare, before, name)}
    return _changed_tree(bare, commit, changes)


def _reason(why: CommitReason) -> str:
    return f"{why.reason.strip()}\n\n" if why.reason.strip() else ""


def _merge(
    bare: BareRepository, *, base: str, ours: str, theirs: str, why: CommitReason
) -> str | list[str]:
    """The tree of a three-way merge, or the names of the files in conflict.

    `merge-tree` takes its base from history (an explicit one only since git 2.40), so it gets a
    small separate history: two commits on a common parent.
    """
    root = _loose_commit(bare, base, (), why.by)
    sides = [_loose_commit(bare, side, (root,), why.by) for side in (ours, theirs)]
    words = (
        "merge-tree",
        "--write-tree",
        "--name-only",
        "--no-messages",
        "-z",
        "--allow-unrelated-histories",
    )
    output = bare.run(*words, *sides, purpose="revert a commit of", may_fail=True)
    parts = [part for part in output.stdout.decode("utf-8", "replace").split("\0") if part]
    if output.status == 0:
        return parts[0].strip()
    return parts[1:]


def restore(
    bare: BareRepository, tip: CommitId, commit: CommitId, paths: Sequence[str], why: CommitReason
) -> CommitId:
    """A commit on the tip that restores each path (a file or a directory) from the older commit;
    removes it if absent there.

    Raises Refused if nothing changes.
    """
    older = object_reader.info(bare, commit)
    changes: dict[bytes, tuple[str, str] | None] = {}
    for path in paths:
        name = _file_name(path)
        changes |= dict.fromkeys((e.name for e in _entries(bare, tip, name)), None)
        changes |= {e.name: (e.mode, e.id) for e in _entries(bare, commit, name)}
    what = paths[0] if len(paths) == 1 else f"{len(paths)} paths"
    message = (
        f"Restore {what} to {short(commit)}\n\n{_reason(why)}"
        f'This restores, from commit {commit} ("{older.subject}"):\n\n'
        + "\n".join(f"- {path}" for path in paths)
        + why.ending
    )
    return _commit(bare, _changed_tree(bare, tip, changes), tip, message, why.by)


def commit_files(
    bare: BareRepository,
    parent: CommitId,
    files: Mapping[str, bytes | None],
    message: str,
    by: Signature,
) -> CommitId:
    """A commit on the parent with the given content of files (None: removed), byte for byte.

    A file keeps its mode. Raises Refused if nothing changes.
    """
    changes: dict[bytes, tuple[str, str] | None] = {}
    for path, content in files.items():
        name = _file_name(path)
        if content is None:
            changes[name.encode()] = None
            continue
        old = [e for e in _entries(bare, parent, name) if e.name == name.encode()]
        id = bare.run(
            "hash-object", "-w", "--no-filters", "--stdin", input=content, purpose="write to"
        ).text
        changes[name.encode()] = (
            old[0].mode if old and old[0].kind is tree.EntryKind.FILE else "100644",
            id,
        )
    return _commit(bare, _changed_tree(bare, parent, changes), parent, message, by)


def commit_empty(bare: BareRepository, parent: CommitId, message: str, by: Signature) -> CommitId:
    """A commit on the parent that changes no file."""
    return _commit(bare, _tree(bare, parent), parent, message, by)


def commit_alone(
    bare: BareRepository, name: str, content: bytes, message: str, by: Signature
) -> CommitId:
    """A commit without a parent, with one file."""
    blob = bare.run(
        "hash-object", "-w", "--no-filters", "--stdin", input=content, purpose="write to"
    ).text
    row = f"100644 blob {blob}\t{_file_name(name)}\n".encode()
    tree_id = bare.run("mktree", input=row, purpose="write to").text
    return _commit(bare, tree_id, None, message, by)


def _file_name(path: str) -> str:
    if tree.plain_path(path.encode("utf-8", "surrogateescape")) is None:
        raise errors.UsageError(f"{path!r} is not a plain path inside the repository")
    return path


def _entries(bare: BareRepository, commit: str, name: str) -> list[tree.TreeEntry]:
    words = ("ls-tree", "-r", "-z", "-l", "--full-tree", "--end-of-options", commit, name)
    return list(tree.entries([bare.run(*words).stdout]))


def _changed_tree(
    bare: BareRepository, parent: CommitId, changes: Mapping[bytes, tuple[str, str] | None]
) -> str:
    """The parent's tree with entries (mode, id) set or removed, built in a temporary index."""
    removed = [b"0 %b\t%b\0" % (b"0" * len(parent), name) for name in changes]
    added = [f"{new[0]} {new[1]}\t".encode() + name + b"\0" for name, new in changes.items() if new]
    with tempfile.TemporaryDirectory(dir=bare.path) as directory:
        index = {"GIT_INDEX_FILE": str(Path(directory) / "index")}
        run = partial(bare.run, environment=index, purpose="write to")
        run("read-tree", f"{parent}^{{tree}}")
        run("update-index", "-z", "--index-info", input=b"".join((*removed, *added)))
        made = run("write-tree").text
    if made == _tree(bare, parent):
        raise errors.Refused(
            f"nothing to commit: the files have this content in {short(parent)} already"
        )
    return made


def _commit(
    bare: BareRepository, made: str, parent: CommitId | None, message: str, by: Signature
) -> CommitId:
    parents = (parent,) if parent else ()
    text = message.rstrip() + "\n"
    if by.signoff:
        text += f"\nSigned-off-by: {by.name} <{by.email}>\n"
    if by.signing is None:
        return _loose_commit(bare, made, parents, by, text)
    with signing.prepared(by.signing) as (words, environment):
        return _loose_commit(bare, made, parents, by, text, signed=(words, environment))


def _loose_commit(
    bare: BareRepository,
    made: str,
    parents: Sequence[str],
    by: Signature,
    message: str = "\n",
    *,
    signed: tuple[tuple[str, ...], Mapping[str, str]] | None = None,
) -> CommitId:
    """A commit of a tree without a ref; `signed` are git's options for signing, and the
    environment.
    """
    date = f"{int(by.at.timestamp())} {by.at.strftime('%z')[:5]}"
    environment = {
        f"GIT_{role}_{what}": value
        for role in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", by.name), ("EMAIL", by.email), ("DATE", date))
    }
    made = bare.run("rev-parse", "--verify", "--end-of-options", made).text
    before, more = signed or ((), {})
    words = (
        *before,
        "commit-tree",
        *(("-S",) if signed else ()),
        made,
        *(word for parent in parents for word in ("-p", parent)),
    )
    return CommitId(
        bare.run(
            *words,
            environment={**environment, **more},
            purpose="write a commit of",
            input=message.encode(),
        ).text
    )


def _tree(bare: BareRepository, commit: CommitId) -> str:
    return bare.run("rev-parse", "--verify", "--end-of-options", f"{commit}^{{tree}}").text


def _empty_tree(bare: BareRepository) -> str:
    return bare.run("hash-object", "-t", "tree", "-w", "--stdin", input=b"").text
