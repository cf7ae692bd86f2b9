"""Reads a bare repository: blobs of a commit, commits, history. Nothing is checked out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from typing import Final, NamedTuple, TypeVar

import git

from gitops_ds.core import errors, plain_text
from gitops_ds.core.objects import CommitId, short
from gitops_ds.core.sources.source_tree import CommitInfo, SourceTree
from gitops_ds.source.git import tree
from gitops_ds.source.git.bare_repository import BareRepository
from gitops_ds.source.git.tree import TreeEntry
from gitops_ds.source.rules import LARGE_REPOSITORY

N = TypeVar("N")
_PIECE: Final = 65_536
# Of a commit with its message and signatures. GitPython reads it as a whole, and a text can take
# four times its bytes.
_LONGEST_COMMIT: Final = 1 << 20


class BranchMovement(StrEnum):
    """The movement of a branch from the applied commit to its tip."""

    FORWARD = "forward"
    REWRITTEN = "rewritten"  # a force-push to another history: continues, with an event
    REWOUND = "rewound"  # the tip is an ancestor: requires approval


def has(bare: BareRepository, commit: CommitId) -> bool:
    """Whether the commit was fetched, with all its objects: packs are complete."""
    return kind_of(bare, commit) == "commit"


def kind_of(bare: BareRepository, id: CommitId) -> str:
    """The type of a fetched object: commit, tree, blob or tag; `missing` without it."""
    return _described(bare, id)[0].kind


class _Description(NamedTuple):
    """The type of an object, `missing` if it does not exist, and its size in bytes."""

    kind: str
    bytes: int = 0


def _described(bare: BareRepository, *names: str) -> list[_Description]:
    """The description of each object; at least one name."""
    lines = "".join(f"{name}\n" for name in names).encode()
    output = bare.run("cat-file", "--batch-check=%(objecttype) %(objectsize)", input=lines)
    rows = (line.rpartition(" ") for line in output.text.split("\n"))
    return [
        _Description(kind, int(last)) if last.isdigit() else _Description(last)
        for kind, _, last in rows
    ]


def snapshot(
    bare: BareRepository,
    commit: CommitId,
    path: str,
    choice: tree.FileChoice = tree.manifests,
) -> SourceTree:
    """The commit's files under the path, within the limits of `tree`; `choice` selects them."""
    prefix = tree.directory(path)
    of_commit, of_directory = _described(bare, commit, f"{commit}:{prefix}")
    if of_commit.kind == "commit" and of_directory.kind != "tree":
        raise errors.RevisionUnknown(
            f"{bare.address.display} has no directory {path} in commit {short(commit)}; check "
            "repository.path"
        )
    entries = _entries(bare, f"{commit}:{prefix}")
    if len(entries) > tree.MOST_ENTRIES:
        message = (
            f"the commit has more than {tree.MOST_ENTRIES:,} files: name a smaller directory "
            "(repository.path)"
        )
        return SourceTree(info(bare, commit), {}, (LARGE_REPOSITORY.refusal(message),))
    sifted = tree.sift(
        entries,
        bare.limits,
        lambda links: dict(_blobs(bare, [(link.name, link) for link in links])),
    )
    files, findings = tree.files(
        sifted, bare.limits, lambda chosen: dict(_blobs(bare, chosen)), choice
    )
    return SourceTree(info(bare, commit), files, findings)


def _entries(bare: BareRepository, tree_ish: str) -> list[TreeEntry]:
    """At most MOST_ENTRIES + 1 entries."""
    with bare.stream(
        "ls-tree", "-r", "-z", "-l", "--full-tree", "--end-of-options", tree_ish, input=b""
    ) as listing:
        entries = list(
            islice(tree.entries(iter(lambda: listing.read(_PIECE), b"")), tree.MOST_ENTRIES + 1)
        )
        for _ in iter(lambda: listing.read(_PIECE), b""):  # read to the end, so that git can exit
            pass
    return entries


def _blobs(
    bare: BareRepository, entries: Sequence[tuple[N, TreeEntry]]
) -> Iterator[tuple[N, bytes]]:
    """The content of each blob by its name, in one run of git; equal blobs are one object."""
    if not entries:
        return
    names: dict[str, list[N]] = {}
    for name, entry in entries:
        names.setdefault(entry.id, []).append(name)
    with bare.stream(
        "cat-file", "--batch", "--buffer", input="".join(f"{id}\n" for id in names).encode()
    ) as out:
        for those in names.values():
            # Each is `id blob size\n`, the bytes, `\n`.
            head = out.readline().split()
            if len(head) != 3:
                raise errors.SourceError(
                    f"our copy of {bare.address.display} lacks an object; delete {bare.path} (a "
                    "cache)"
                )
            data = out.read(int(head[2]))
            out.read(1)
            for name in those:
                yield name, data


def file(bare: BareRepository, commit: CommitId, name: str, longest: int) -> bytes | None:
    """The file of a fetched commit; None if it is missing or has more than `longest` bytes."""
    described = _described(bare, f"{commit}:{name}")[0]
    if described.kind != "blob" or described.bytes > longest:
        return None
    return bare.run("cat-file", "blob", f"{commit}:{name}").stdout


def info(bare: BareRepository, commit: CommitId) -> CommitInfo:
    """The metadata of a fetched commit."""
    return _info(_commit(bare, commit))


def _commit(bare: BareRepository, commit: CommitId) -> git.Commit:
    described = _described(bare, commit)[0]
    if described.kind != "commit":
        raise errors.RevisionUnknown(
            f"{bare.address.display} has no commit {commit}, or it was not fetched"
        )
    _require_short(bare, commit, described)
    return bare.objects.commit(commit)


def _require_short(bare: BareRepository, commit: CommitId, described: _Description) -> None:
    """Raises SourceTooLarge for a commit whose message, or signature, is too long to be read."""
    if described.bytes > _LONGEST_COMMIT:
        raise errors.SourceTooLarge(
            f"commit {short(commit)} of {bare.address.display} has a message of more than "
            f"{_LONGEST_COMMIT >> 20} MiB: push a commit without it"
        )


def _info(commit: git.Commit) -> CommitInfo:
    return CommitInfo(
        CommitId(commit.hexsha),
        tuple(CommitId(p.hexsha) for p in commit.parents),
        datetime.fromtimestamp(commit.committed_date, UTC),
        plain_text.line(f"{commit.author.name} <{commit.author.email}>"),
        plain_text.line(text_of(commit.summary)),
    )


def text_of(text: str | bytes) -> str:
    """A text of GitPython, which may be bytes."""
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


def log(
    bare: BareRepository, since: CommitId | None, until: CommitId, limit: int
) -> tuple[CommitInfo, ...]:
    """The commits reachable from `until` but not from `since`, newest first, at most `limit`."""
    for commit in (since, until):
        if commit is not None:
            _commit(bare, commit)
    span = f"{since}..{until}" if since else str(until)
    ids = bare.run("rev-list", f"--max-count={limit}", "--end-of-options", span).text.split()
    for id, described in zip(ids, _described(bare, *ids) if ids else (), strict=True):
        _require_short(bare, CommitId(id), described)
    return tuple(_info(bare.objects.commit(id)) for id in ids)


def is_ancestor(bare: BareRepository, ancestor: CommitId, descendant: CommitId) -> bool:
    """Whether the first is in the history of the second; a commit is its own ancestor."""
    return bare.run("merge-base", "--is-ancestor", ancestor, descendant, may_fail=True).status == 0


def merge_base(bare: BareRepository, one: CommitId, other: CommitId) -> CommitId | None:
    """The best common ancestor of two commits; None without one, or if it was not fetched."""
    answer = bare.run("merge-base", one, other, may_fail=True)
    return CommitId(answer.text.strip()) if answer.status == 0 else None


def movement(bare: BareRepository, last: CommitId, tip: CommitId) -> BranchMovement:
    """The movement from the applied commit to the tip; REWRITTEN if the applied one is gone."""
    if last == tip or (has(bare, last) and is_ancestor(bare, last, tip)):
        return BranchMovement.FORWARD
    if has(bare, last) and is_ancestor(bare, tip, last):
        return BranchMovement.REWOUND
    return BranchMovement.REWRITTEN


def rewound(where: str, last: CommitId, tip: CommitId) -> errors.HistoryRewound:
    """The error for a branch that was moved back, which requires approval."""
    return errors.HistoryRewound(
        f"{where} went back from {short(last)} to its ancestor {short(tip)}, which would undo what "
        "was applied; push a revert commit instead, or approve it with "
        f"`gitops-ds apply --revision {short(tip)}`"
    )


def show(bare: BareRepository, commit: CommitId) -> str:
    """The commit as text: header, message, patch."""
    words = (
        "show",
        "--no-ext-diff",
        "--no-textconv",
        "--no-color",
        "--no-show-signature",
        "--format=medium",
        "--patch",
    )
    return bare.run(*words, "--end-of-options", commit).stdout.decode("utf-8", "replace")
