"""Bounds the local copy of a repository: all packs together have at most `limits.bytes`.

A force-push leaves objects that no branch has. They remain as long as the copy is small, so that a
branch that returns costs no fetch. Above the limit only these are kept: the fetched commit, the
pinned commits, their tags, and the reports of clusters. If that is still too much, the copy is
deleted: it is a cache. A process that is killed meanwhile leaves a complete copy or an empty one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable

from gitops_ds.core import errors
from gitops_ds.core.objects import CommitId
from gitops_ds.source.git import object_reader
from gitops_ds.source.git.bare_repository import BareRepository

SEEN = "refs/gitops-ds/seen/"  # the last fetched commits
_PINNED = "refs/gitops-ds/pinned/"
_DROPPED = (SEEN, "refs/gitops-ds/heads/", "refs/gitops-ds/tags/")
_REPACK = ("repack", "-d", "--quiet", "--no-write-bitmap-index")
_PURPOSE = "keep a copy of"


def pin(bare: BareRepository, name: str, commits: Collection[CommitId]) -> None:
    """Keeps these commits, as far as they were fetched, in place of those that were pinned under
    the same name before.
    """
    folder = f"{_PINNED}{name}/"
    before = set(bare.run("for-each-ref", "--format=%(refname)", folder).text.split())
    after = {f"{folder}{commit}": commit for commit in commits if object_reader.has(bare, commit)}
    rows = [f"create {ref} {one}\n" for ref, one in after.items() if ref not in before]
    rows += [f"delete {ref}\n" for ref in sorted(before - set(after))]
    _update_refs(bare, rows)


def before_fetch(bare: BareRepository) -> None:
    """Bounds a copy whose last fetch failed, or was ended before `after_fetch`."""
    if not _is_bounded(bare, (SEEN,), ()):
        bare.empty()


def after_fetch(bare: BareRepository, *kept: tuple[str, ...]) -> None:
    """Bounds the copy with the refs that have one of these prefixes: those of the first tuple, or
    else of the next one.

    Raises SourceTooLarge for a copy that exceeds the limit even so.
    """
    if not _is_bounded(bare, *kept):
        bare.empty()
        raise errors.SourceTooLarge(
            f"the local copy of {bare.address.display} exceeds the size limit of "
            f"{bare.limits.bytes:,} bytes and was deleted; raise repository.limits.bytes or use a "
            "smaller repository"
        )


def merge_packs(bare: BareRepository) -> None:
    """Each fetch adds a pack: a geometric repack keeps their number logarithmic. Packs that are too
    large for the memory of git remain.
    """
    with bare.alone(), contextlib.suppress(errors.GitMemoryExceeded):
        bare.run(*_REPACK, "--geometric=2", purpose=_PURPOSE)


def _is_bounded(bare: BareRepository, *kept: tuple[str, ...]) -> bool:
    """Whether the copy is within the limit, if need be without the objects that belong to no kept
    ref.
    """
    for prefixes in kept:
        if not _exceeds(bare):
            return True
        with bare.alone():
            dropped = _dropped(bare, (_PINNED, *prefixes))
            _update_refs(bare, [f"delete {ref}\n" for ref in dropped])
            with contextlib.suppress(errors.GitMemoryExceeded):
                bare.run(*_REPACK, "-a", purpose=_PURPOSE)
    return not _exceeds(bare)


def _exceeds(bare: BareRepository) -> bool:
    return bare.pack_bytes() > bare.limits.bytes


def _dropped(bare: BareRepository, kept: tuple[str, ...]) -> Iterable[str]:
    """The refs to delete: all that are not kept, except tags of kept commits."""
    output = bare.run("for-each-ref", "--format=%(refname) %(objectname) %(*objectname)").text
    rows = [row.split() for row in output.splitlines()]
    commits = {commit_id for ref, *ids in rows if ref.startswith(kept) for commit_id in ids}
    for ref, *ids in rows:
        if ref.startswith(_DROPPED) and not ref.startswith(kept) and commits.isdisjoint(ids):
            yield ref


def _update_refs(bare: BareRepository, rows: Collection[str]) -> None:
    """In one transaction."""
    if rows:
        bare.run("update-ref", "--stdin", input="".join(rows).encode(), purpose=_PURPOSE)
