"""The remote repository: list refs, fetch, push. Of a clone on this machine, every revision that
git resolves there.
"""

from __future__ import annotations

from pathlib import Path

import git

from gitops_ds.core import errors
from gitops_ds.core.objects import CommitId, short
from gitops_ds.core.sources.repository_limits import DEFAULT
from gitops_ds.source.git import error_messages, hardening, local_copy, object_reader, revision
from gitops_ds.source.git.address import Scheme
from gitops_ds.source.git.bare_repository import BareRepository

_RACE = (
    "stale info",
    "fetch first",
    "non-fast-forward",
    "needs force",
    "cannot lock ref",
    "failed to update ref",
    "incorrect old value",
)

# Each is a file in the local copy, of 4 KiB on most file systems.
_MOST_REFS = 50_000
# Pruned, since a deleted branch `a` would block `a/b`.
_EVERYTHING = ("+refs/heads/*:refs/gitops-ds/heads/*", "+refs/tags/*:refs/gitops-ds/tags/*")


def refs(bare: BareRepository, spec: revision.RevisionSpec, *names: str) -> dict[str, CommitId]:
    """The refs of `git ls-remote`: names to ids, `NAME^{}` for the target of an annotated tag. Only
    the kinds that the revision needs, and of these only `names`, if any are given.
    """
    kinds: tuple[str, ...]
    match spec:
        case revision.Branch():
            kinds = ("--heads",)
        case revision.Tag() | revision.Semver():
            kinds = ("--tags",)
        case revision.ShortName():
            kinds = ("--heads", "--tags")
        case (
            revision.Head()
            | revision.Ref()
            | revision.Commit()
            | revision.Reflog()
            | revision.Ancestor()
        ):
            kinds = ()
    listing = bare.run_remote(
        *("ls-remote", "--quiet", *kinds, "--end-of-options", bare.address.url, *names),
        purpose="read",
    ).text
    result = {}
    for line in listing.splitlines():
        id, tab, name = line.partition("\t")
        if tab:
            result[name] = revision.commit_id(id)
    return result


def tip(bare: BareRepository, spec: revision.RevisionSpec) -> CommitId:
    """The current commit of a revision. A full commit id needs no request, an abbreviated one all
    branches.

    A clone's own names (`origin/main`, `@{u}`) resolve if the address is a clone. Raises
    RevisionUnknown with similar names.
    """
    if isinstance(spec, revision.Commit):
        return spec.id
    if isinstance(spec, revision.Ancestor):
        return _ancestor(bare, spec)
    # Few of the refs of a large repository are read; all of them only for similar names.
    names = revision.ref_names(spec)
    commit = revision.resolve(spec, refs(bare, spec, *names)) if names else None
    known_refs = refs(bare, spec) if commit is None else {}
    commit = commit or revision.resolve(spec, known_refs)
    if commit is None and isinstance(spec, revision.ShortName | revision.Reflog):
        if bare.address.scheme is Scheme.FILE:
            commit = resolve_in_clone(Path(bare.address.display), spec.name)
        elif isinstance(spec, revision.Reflog):
            raise errors.RevisionUnknown(
                f"{spec.name} exists in a clone only, and {bare.address.display} is a server: "
                "use a branch"
            )
        elif known_refs and revision.could_be_abbreviated(spec.name):
            _fetch_everything(bare, len(known_refs))
            commit = _verified(bare, spec.name)
    if commit is None:
        raise revision.unknown(spec, known_refs, bare.address.display)
    return commit


def _ancestor(bare: BareRepository, spec: revision.Ancestor) -> CommitId:
    start = tip(bare, spec.of)
    fetch(bare, start)
    commit = _verified(bare, f"{start}{spec.steps}")
    if commit is None:
        raise errors.RevisionUnknown(
            f"{bare.address.display} has no {revision.show(spec)}: the history of {short(start)} "
            "ends before it, or was not fetched"
        )
    return commit


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
    """Fetches a commit with its history, unless it was fetched; at most `limits.bytes` in
    `limits.seconds`.
    """
    if object_reader.has(bare, commit):
        return
    # Sixteen refs suffice to negotiate the local objects, and limit their number.
    seen = f"{local_copy.SEEN}{commit[0]}"
    try:
        _fetch(bare, f"+{commit}:{seen}")
    except errors.RevisionUnknown:
        # A server may refuse a fetch by commit id without a ref.
        _fetch_everything(bare, len(refs(bare, revision.ShortName(""))))
    if (kind := object_reader.kind_of(bare, commit)) in ("tree", "blob"):
        raise errors.RevisionUnknown(
            f"{short(commit)} of {bare.address.display} is a {kind}, not a commit: let the tag or "
            "ref point to a commit"
        )
    if kind != "commit":
        raise errors.RevisionUnknown(
            f"{bare.address.display} has no commit {commit}; it may have been removed by a "
            "force-push"
        )
    bare.run("update-ref", seen, commit, purpose="keep a copy of")
    local_copy.after_fetch(bare, (seen,))
    local_copy.merge_packs(bare)


def _fetch_everything(bare: BareRepository, number: int) -> None:
    """Fetches all branches and tags, of this number. Raises SourceTooLarge for too many."""
    if number > _MOST_REFS:
        raise errors.SourceTooLarge(
            f"{bare.address.display} has {number:,} branches and tags, and a commit can't be "
            "fetched alone: let the server permit it (uploadpack.allowAnySHA1InWant), or delete "
            "some"
        )
    _fetch(bare, *_EVERYTHING, prune=True)


def fetch_tag(bare: BareRepository, name: str) -> None:
    """Fetches a tag object, which contains the signature."""
    ref = f"refs/gitops-ds/tags/{name}"
    _fetch(bare, f"+refs/tags/{name}:{ref}")
    local_copy.after_fetch(bare, (ref, local_copy.SEEN), (ref,))


def fetch_refs(bare: BareRepository, prefix: str) -> None:
    """Fetches all refs below a prefix into refs of the same names; removed ones are removed."""
    _fetch(bare, f"+{prefix}*:{prefix}*", prune=True)
    local_copy.after_fetch(bare, (prefix, local_copy.SEEN), (prefix,))


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
    local_copy.before_fetch(bare)
    with bare.alone():
        bare.run_remote(*words, purpose="fetch from", largest_file=bare.limits.bytes)


def push(bare: BareRepository, commit: CommitId, branch: str, expect: CommitId | None) -> None:
    """Moves the server's branch from `expect` (None: it must not exist) forward to the commit.

    Raises PushRejected if the branch has moved, SourceDenied if a rule of the server refuses it.
    """
    revision.check_ref_name(branch)
    if expect is not None and not object_reader.is_ancestor(bare, expect, commit):
        raise errors.Refused(
            f"the commit {short(commit)} is not a descendant of {short(expect)}; only fast-forward "
            "pushes are allowed"
        )
    push_ref(bare, commit, f"refs/heads/{branch}", expect)


def push_ref(bare: BareRepository, commit: CommitId, ref: str, expect: CommitId | None) -> None:
    """Moves the server's ref from `expect` (None: it must not exist) to the commit, which need not
    be a descendant. Errors as in `push`.
    """
    branch = ref.removeprefix("refs/heads/")
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
        f"{commit}:{ref}",  # a `+` would override the lease
        purpose="push to",
        may_fail=True,
    )
    if output.status == 0:
        return
    reason = next(
        (line.split("\t")[-1] for line in output.text.splitlines() if line.startswith("!\t")), ""
    )
    if any(sign in reason or sign in output.stderr for sign in _RACE):
        raise errors.PushRejected(
            f"{branch} of {bare.address.display} has a newer commit; try again on the new tip"
        )
    if reason:
        message = " ".join(
            li.removeprefix("remote:").strip()
            for li in error_messages.clean(output.stderr).splitlines()
            if li.startswith("remote:")
        )
        raise errors.SourceDenied(
            f"{bare.address.display} refused the push to {branch}: "
            f"{reason.strip('[]')}{': ' + message[:300] if message else ''}; "
            "a protected branch needs another permission, or a pull request"
        )
    raise bare.failure("push to", output)


def default_branch(bare: BareRepository) -> str:
    """The branch of the server's HEAD (of a work tree: the checked-out one).

    Raises RevisionUnknown if HEAD is not a branch.
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
    raise errors.RevisionUnknown(f"{bare.address.display} has no default branch: set --branch")


def resolve_in_clone(clone: Path, text: str) -> CommitId | None:
    """The commit of a revision in a work tree or a bare repository; None if it does not exist."""
    runner = hardening.HardenedGit(clone)
    runner.update_environment(
        **(hardening.desk() if (clone / ".git").exists() else hardening.local(clone))
    )
    command = ["git", "rev-parse", "--verify", "--quiet", "--end-of-options", f"{text}^{{commit}}"]
    try:
        return CommitId(str(runner.execute(command, kill_after_timeout=DEFAULT.seconds)).strip())
    except git.GitCommandError:
        return None
