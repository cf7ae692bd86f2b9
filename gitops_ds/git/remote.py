"""The server's side: what it has, bring it here, send it there."""

from __future__ import annotations

from pathlib import Path

from gitops_ds import errors
from gitops_ds.git import error_messages, local_revision, object_reader, revision
from gitops_ds.git.address import Scheme
from gitops_ds.git.bare_repository import BareRepository
from gitops_ds.git.revision import (
    Ancestor,
    Branch,
    Commit,
    Head,
    Ref,
    Reflog,
    RevisionSpec,
    Semver,
    ShortName,
    Tag,
)
from gitops_ds.model.objects import CommitId

_RACE = (
    "stale info",
    "fetch first",
    "non-fast-forward",
    "needs force",
    "cannot lock ref",
    "failed to update ref",
    "incorrect old value",
)

# Pruned, since a branch `a` that went away would be in the way of `a/b`.
_EVERYTHING = ("+refs/heads/*:refs/gitops-ds/heads/*", "+refs/tags/*:refs/gitops-ds/tags/*")


def refs(bare: BareRepository, wanted: RevisionSpec) -> dict[str, CommitId]:
    """What `git ls-remote` says: names to ids, `NAME^{}` for what an annotated tag points at. Asks
    for no more than is needed.
    """
    kinds: tuple[str, ...]
    match wanted:
        case Branch():
            kinds = ("--heads",)
        case Tag() | Semver():
            kinds = ("--tags",)
        case ShortName():
            kinds = ("--heads", "--tags")
        case Head() | Ref() | Commit() | Reflog() | Ancestor():
            kinds = ()
    listing = bare.run_remote(
        "ls-remote", "--quiet", *kinds, "--end-of-options", bare.address.url, purpose="read"
    ).text
    result = {}
    for line in listing.splitlines():
        id, tab, name = line.partition("\t")
        if tab:
            result[name] = revision.commit_id(id)
    return result


def tip(bare: BareRepository, wanted: RevisionSpec) -> CommitId:
    """The commit that a revision means now. A commit by its full id needs no request, an
    abbreviated one all branches.

    A clone's own names (`origin/main`, `@{u}`) resolve where the address is a clone. Raises
    RevisionUnknown with similar names.
    """
    if isinstance(wanted, Commit):
        return wanted.id
    if isinstance(wanted, Ancestor):
        return _ancestor(bare, wanted)
    known = refs(bare, wanted)
    found = revision.resolve(wanted, known)
    if found is None and isinstance(wanted, ShortName | Reflog):
        if bare.address.scheme is Scheme.FILE:
            found = local_revision.resolve(Path(bare.address.display), wanted.name)
        elif isinstance(wanted, Reflog):
            raise errors.RevisionUnknown(
                f"{wanted.name} is known in a clone only, and {bare.address.display} is a server: "
                "name a branch"
            )
        elif known and revision.could_be_abbreviated(wanted.name):
            _fetch(bare, *_EVERYTHING, prune=True)
            found = _verified(bare, wanted.name)
    if found is None:
        raise revision.unknown(wanted, known, bare.address.display)
    return found


def _ancestor(bare: BareRepository, wanted: Ancestor) -> CommitId:
    start = tip(bare, wanted.of)
    fetch(bare, start)
    found = _verified(bare, f"{start}{wanted.steps}")
    if found is None:
        raise errors.RevisionUnknown(
            f"{bare.address.display} has no {revision.show(wanted)}: the history of {start[:12]} "
            "ends before it, or was not fetched"
        )
    return found


def _verified(bare: BareRepository, expression: str) -> CommitId | None:
    answer = bare.run(
        "rev-parse",
        "--verify",
        "--quiet",
        "--end-of-options",
        f"{expression}^{{commit}}",
        may_fail=True,
    )
    return CommitId(answer.text) if answer.status == 0 else None


def fetch(bare: BareRepository, commit: CommitId) -> None:
    """Brings a commit with its history, unless it is here already; at most `limits.bytes` in
    `limits.seconds`.
    """
    if object_reader.has(bare, commit):
        return
    try:
        # Sixteen refs are enough to tell the server what we have, and never become many.
        _fetch(bare, f"+{commit}:refs/gitops-ds/seen/{commit[0]}")
    except errors.RevisionUnknown:
        # A server may refuse to send a commit by its id unless a ref names it.
        _fetch(bare, *_EVERYTHING, prune=True)
    if not object_reader.has(bare, commit):
        raise errors.RevisionUnknown(
            f"{bare.address.display} has no commit {commit}; it may have been removed by a "
            "force-push"
        )
    # Each fetch makes a pack: joined in steps of two, there are never more than about log2 of them.
    bare.run(
        "repack",
        "-d",
        "--geometric=2",
        "--quiet",
        "--no-write-bitmap-index",
        purpose="keep a copy of",
    )


def fetch_tag(bare: BareRepository, name: str) -> None:
    """Brings a tag's own object, which holds its signature."""
    _fetch(bare, f"+refs/tags/{name}:refs/gitops-ds/tags/{name}")


def _fetch(bare: BareRepository, *refspecs: str, prune: bool = False) -> None:
    options = (
        "--quiet",
        "--no-tags",
        "--no-write-fetch-head",
        "--no-recurse-submodules",
        "--no-auto-maintenance",
    )
    words = (
        "fetch",
        *options,
        *(("--prune",) if prune else ()),
        "--end-of-options",
        bare.address.url,
        *refspecs,
    )
    bare.run_remote(*words, purpose="fetch from", largest_file=bare.limits.bytes)


def push(bare: BareRepository, commit: CommitId, branch: str, expect: CommitId | None) -> None:
    """Moves the server's branch from `expect` (None: it must not exist) forward to the commit.

    Raises PushRejected when the branch is elsewhere by now, SourceDenied when a rule of the server
    says no.
    """
    revision.check_ref_name(branch)
    if expect is not None and not object_reader.is_ancestor(bare, expect, commit):
        raise errors.Refused(
            f"the commit {commit[:12]} does not follow {expect[:12]}; only a push forward is made"
        )
    ref = f"refs/heads/{branch}"
    options = (
        "--porcelain",
        "--no-verify",
        "--no-follow-tags",
        "--no-signed",
        f"--force-with-lease={ref}:{expect or ''}",
    )
    output = bare.run_remote(
        "push",
        *options,
        "--end-of-options",
        bare.address.url,
        f"{commit}:{ref}",
        purpose="push to",
        may_fail=True,
    )
    if output.status == 0:
        return
    refused = next(
        (line.split("\t")[-1] for line in output.text.splitlines() if line.startswith("!\t")), ""
    )
    if any(sign in refused or sign in output.stderr for sign in _RACE):
        raise errors.PushRejected(
            f"someone pushed to {branch} of {bare.address.display} first; try again on the new tip"
        )
    if refused:
        said = " ".join(
            li.removeprefix("remote:").strip()
            for li in error_messages.clean(output.stderr).splitlines()
            if li.startswith("remote:")
        )
        raise errors.SourceDenied(
            f"{bare.address.display} refused the push to {branch}: "
            f"{refused.strip('[]')}{': ' + said[:300] if said else ''}; "
            "a protected branch needs another right, or a pull request"
        )
    raise bare.failure("push to", output)


def default_branch(bare: BareRepository) -> str:
    """The branch that the server's HEAD names (of a work tree: the one that is checked out).

    Raises RevisionUnknown when HEAD names none.
    https://git-scm.com/docs/git-ls-remote#Documentation/git-ls-remote.txt---symref
    """
    listing = bare.run_remote(
        "ls-remote",
        "--quiet",
        "--symref",
        "--end-of-options",
        bare.address.url,
        "HEAD",
        purpose="read",
    ).text
    for line in listing.splitlines():
        words, tab, name = line.partition("\t")
        if tab and name == "HEAD" and words.startswith("ref: refs/heads/"):
            branch = words.removeprefix("ref: refs/heads/")
            revision.check_ref_name(branch)
            return branch
    raise errors.RevisionUnknown(
        f"{bare.address.display} has no default branch: name one with --branch"
    )
