"""Revisions: default branch, branch, tag, version range, full ref, id, `~` and `^`, and their
resolution at a server.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

import msgspec

from gitops_ds.core import errors
from gitops_ds.core.objects import CommitId
from gitops_ds.source.git import semver

_FULL_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SHORT_ID = re.compile(r"[0-9a-f]{7,64}")
# https://git-scm.com/docs/gitrevisions: the steps to an ancestor, and expressions that need a
# reflog or the configuration of a clone
_STEPS = re.compile(
    r"(?P<start>.+?)(?P<steps>(?:~\d{0,9}|\^\d{0,9}|\^\{(?:commit)?\})+)", re.DOTALL
)
_REFLOG = re.compile(r"(?P<name>[^@]*)@\{[\w .:+-]{1,100}\}")
# https://git-scm.com/docs/git-check-ref-format; ASCII control characters, and revision syntax
_REF_FORBIDDEN = re.compile(
    r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|(?:^|/)\.|\.(?:/|$)|\.lock(?:/|$)|^[-/]|/$|^@$"
)


class Head(msgspec.Struct, frozen=True):
    """The server's default branch."""


class Branch(msgspec.Struct, frozen=True):
    """`refs/heads/NAME`."""

    name: str


class Tag(msgspec.Struct, frozen=True):
    """The commit under `refs/tags/NAME`."""

    name: str


class Semver(msgspec.Struct, frozen=True):
    """The tag with the highest version in a range."""

    range: str


class Ref(msgspec.Struct, frozen=True):
    """Any full ref: `refs/pull/420/head`."""

    name: str


class Commit(msgspec.Struct, frozen=True):
    """One commit, by its full id."""

    id: CommitId


class ShortName(msgspec.Struct, frozen=True):
    """A short name: a branch, else a tag, else the first characters of a commit's id."""

    name: str


class Reflog(msgspec.Struct, frozen=True):
    """A name that only a clone can resolve: `@{upstream}`, `main@{1}`."""

    name: str


class Ancestor(msgspec.Struct, frozen=True):
    """A commit reached from another one by Git's steps: `HEAD~2`, `v1^`."""

    of: Head | Ref | Commit | ShortName | Reflog
    steps: str


RevisionSpec = Head | Branch | Tag | Semver | Ref | Commit | ShortName | Reflog | Ancestor


def parse(text: str | None) -> RevisionSpec:
    """A revision of the command line: empty, a commit id (full or abbreviated), `refs/...`, a name,
    each with `~N` or `^N`.

    A branch takes precedence over a tag of the same name. Raises UsageError for other syntax of
    https://git-scm.com/docs/gitrevisions.
    """
    if stepped := _STEPS.fullmatch(text or ""):
        return Ancestor(_start(stepped["start"]), stepped["steps"])
    return _start(text)


def _start(text: str | None) -> Head | Ref | Commit | ShortName | Reflog:
    if not text or text in {"HEAD", "@"}:
        return Head()
    if _FULL_ID.fullmatch(text):
        return Commit(CommitId(text))
    if reflog := _REFLOG.fullmatch(text):
        if reflog["name"]:
            check_ref_name(reflog["name"])
        return Reflog(text)
    check_ref_name(text)
    return Ref(text) if text.startswith("refs/") else ShortName(text)


def from_settings(
    *, commit: str = "", name: str = "", semver: str = "", tag: str = "", branch: str = ""
) -> RevisionSpec:
    """The revision of the settings: commit > name (a full ref) > semver > tag > branch, the
    precedence of Flux.
    """
    if commit:
        return Commit(commit_id(commit))
    if name:
        check_ref_name(name)
        if not name.startswith("refs/"):
            raise errors.UsageError(f"{name!r} is not a full ref; it must begin with refs/")
        return Ref(name)
    if semver:
        return _semver(semver)
    if tag or branch:
        check_ref_name(tag or branch)
        return Tag(tag) if tag else Branch(branch)
    return Head()


def _semver(text: str) -> Semver:
    semver.parse(text)
    return Semver(text)


def commit_id(text: str) -> CommitId:
    """The text as a full commit id. Raises UsageError if it is not one."""
    if not _FULL_ID.fullmatch(text):
        raise errors.UsageError(
            f"{text!r} is not a commit's full id of 40 (or 64) hexadecimal digits in lower case"
        )
    return CommitId(text)


def check_ref_name(name: str) -> None:
    """Raises UsageError for a name that Git would refuse, or could read as an option or an
    expression.
    """
    if not name or len(name) > 1000 or _REF_FORBIDDEN.search(name):
        raise errors.UsageError(
            f"{name!r} can't be the name of a branch or tag; a revision is a branch, a tag or a "
            "commit, with ~N or ^N behind it"
        )


def could_be_abbreviated(name: str) -> bool:
    """Whether the name may be an abbreviated commit id."""
    return bool(_SHORT_ID.fullmatch(name))


def show(revision: RevisionSpec) -> str:
    """The revision as text."""
    match revision:
        case Head():
            return "the default branch"
        case Branch(name):
            return f"branch {name}"
        case Tag(name):
            return f"tag {name}"
        case Semver(text):
            return f"a tag in the version range {text}"
        case Ref(name):
            return name
        case Commit(id):
            return f"commit {id}"
        case ShortName(name) | Reflog(name):
            return name
        case Ancestor(start, steps):
            return f"{_shown_start(start)}{steps}"


def _shown_start(start: Head | Ref | Commit | ShortName | Reflog) -> str:
    match start:
        case Head():
            return "HEAD"
        case Commit(id):
            return str(id)
        case _:
            return start.name


def resolve(revision: RevisionSpec, refs: Mapping[str, CommitId]) -> CommitId | None:
    """The commit of a revision by a server's refs, or None.

    `refs` is the output of `git ls-remote`: names to ids, where `NAME^{}` is the commit of an
    annotated tag.
    """
    match revision:
        case Head():
            return refs.get("HEAD")
        case Branch(name):
            return refs.get(f"refs/heads/{name}")
        case Tag(name):
            return _peeled(f"refs/tags/{name}", refs)
        case Semver():
            best = tag(revision, refs)
            return None if best is None else _peeled(f"refs/tags/{best}", refs)
        case Ref(name):
            return _peeled(name, refs)
        case Commit(id):
            return id
        case ShortName(name):
            return refs.get(f"refs/heads/{name}") or _peeled(f"refs/tags/{name}", refs)
        case Reflog() | Ancestor():
            return None


def ref_names(revision: RevisionSpec) -> tuple[str, ...]:
    """The refs by which `resolve` decides; none for a range, which needs all tags."""
    match revision:
        case Head():
            return ("HEAD",)
        case Branch(name):
            return (f"refs/heads/{name}",)
        case Tag(name):
            return _with_peeled(f"refs/tags/{name}")
        case Ref(name):
            return _with_peeled(name)
        case ShortName(name):
            return (f"refs/heads/{name}", *_with_peeled(f"refs/tags/{name}"))
        case Semver() | Commit() | Reflog() | Ancestor():
            return ()


def _with_peeled(name: str) -> tuple[str, str]:
    return name, f"{name}^{{}}"


def tag(revision: RevisionSpec, refs: Mapping[str, CommitId]) -> str | None:
    """The name of a revision's tag among a server's refs; None for another kind of revision."""
    match revision:
        case Tag(name):
            return name
        case Semver(text):
            tags = [
                r.removeprefix("refs/tags/")
                for r in refs
                if r.startswith("refs/tags/") and not r.endswith("^{}")
            ]
            return semver.best(semver.parse(text), tags)
        case Ref(name) if name.startswith("refs/tags/"):
            return name.removeprefix("refs/tags/")
        case _:
            return None


def _peeled(name: str, refs: Mapping[str, CommitId]) -> CommitId | None:
    return refs.get(f"{name}^{{}}") or refs.get(name)


def unknown(
    revision: RevisionSpec, refs: Mapping[str, CommitId], where: str
) -> errors.RevisionUnknown:
    """The error for a revision that the server does not have, with similar names."""
    # The refs of a tag, or of a range of versions, are tags alone.
    kind, several, prefix = "branch", "branches", "refs/heads/"
    if isinstance(revision, Tag | Semver):
        kind, several, prefix = "tag", "tags", "refs/tags/"
    elif not refs:
        advice = "push a first one" if ":" in where else "commit, or push, a first one"
        return errors.RevisionUnknown(f"{where} has no commit yet: {advice}")
    names = [
        r.split("/", 2)[2]
        for r in refs
        if r.startswith(("refs/heads/", "refs/tags/")) and not r.endswith("^{}")
    ]
    text = show(revision).rsplit(" ", 1)[-1]
    # `origin/main` in a clone is `main` of its server.
    near = [name for name in names if text.endswith(f"/{name}")] or difflib.get_close_matches(
        text, names, 3, 0.6
    )
    others = sorted(
        name.removeprefix(prefix)
        for name in refs
        if name.startswith(prefix) and not name.endswith("^{}")
    )
    if isinstance(revision, Semver):  # a range is similar to no name
        text = f"it has the tags {', '.join(others[:5])}" if others else "it has no tag"
        hint = f"{text}: push one, such as v1.2.3, that the range contains, or change the range"
    elif near:
        hint = f"did you mean {' or '.join(near)}?"
    elif others:
        hint = f"it has the {several} {', '.join(others[:5])}"
    else:
        hint = f"it has no {kind}: push it, or correct its name"
    missing = show(revision).removeprefix("a ").removeprefix("the ")
    return errors.RevisionUnknown(f"{where} has no {missing}; {hint}")
