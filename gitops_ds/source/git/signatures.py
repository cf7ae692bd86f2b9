"""Signature verification: git verifies commits and tags against the keys in the settings only.

git, gpg and ssh-keygen use a temporary directory with those keys. The repository's content has no
influence: git runs with the configuration of `hardening` and of this module, in our own bare copy.
https://git-scm.com/docs/git-verify-commit,
https://git-scm.com/docs/git-config#Documentation/git-config.txt-gpgformat
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from gitops_ds.core import errors
from gitops_ds.core.objects import CommitId, short
from gitops_ds.core.sources.signatures import Mode, Trust, Unverified, Verified
from gitops_ds.source.git import object_reader, remote, revision, verification_keys
from gitops_ds.source.git.bare_repository import BareRepository
from gitops_ds.source.git.revision import RevisionSpec

MOST = 10_000  # commits per check; an ordinary push has fewer since the last verified one
_AT_ONCE = 100


def is_signed(bare: BareRepository, commit: CommitId) -> bool:
    """Whether a commit has a signature at all, by any key."""
    head, _, _ = bare.run("cat-file", "commit", commit).stdout.partition(b"\n\n")
    return b"\ngpgsig" in head


def verify(
    bare: BareRepository, spec: RevisionSpec, tip: CommitId, since: CommitId | None, trust: Trust
) -> Verified | Unverified:
    """Whether a fetched tip is trusted. `since` is the last verified commit; without one, mode ALL
    verifies the tip only.

    Raises UsageError for keys that can't be read, SourceError if git fails for another reason than
    a signature.
    """
    with _keys(trust) as keys:
        if trust.mode is Mode.TAG:
            return _tag(bare, spec, tip, keys)
        commits = [tip]
        if trust.mode is Mode.ALL and since is not None:
            if not object_reader.has(bare, since):
                return Unverified(tip, _lost(since, tip))
            commits = _came(bare, since, tip)
            if len(commits) > MOST:
                return Unverified(
                    tip, f"more than {MOST} commits followed {short(since)}: {_agree(tip)}"
                )
        return _commits(bare, commits, keys)


def verify_kept(
    bare: BareRepository, spec: RevisionSpec, commit: CommitId, trust: Trust
) -> Verified | Unverified:
    """Whether a former tip is signed; in mode TAG, whether one of its current tags is."""
    with _keys(trust) as keys:
        if trust.mode is not Mode.TAG:
            return _commits(bare, [commit], keys)
        refs = remote.refs(bare, spec)
        tags = [
            ref.removeprefix("refs/tags/").removesuffix("^{}")
            for ref, id in refs.items()
            if id == commit and ref.endswith("^{}")
        ]
        return _first_good(
            commit, [_tag_named(bare, name, refs, commit, keys) for name in sorted(tags)]
        )


def verify_fetched(bare: BareRepository, commit: CommitId, trust: Trust) -> Verified | Unverified:
    """Like `verify_kept` in mode TAG, with the fetched tags instead of the server's, so that
    deleted ones count.
    """
    rows = bare.run(
        "for-each-ref",
        "--format=%(objectname) %(*objectname) %(refname:lstrip=3)",
        "refs/gitops-ds/tags",
    ).text
    tags = [row.split(" ", 2) for row in rows.splitlines()]
    with _keys(trust) as keys:
        return _first_good(
            commit,
            [
                _tag_object(bare, (name, id), commit, keys)
                for id, of, name in sorted(tags)
                if of == commit
            ],
        )


def _first_good(
    commit: CommitId, results: Sequence[Verified | Unverified]
) -> Verified | Unverified:
    return next(
        (result for result in results if isinstance(result, Verified)),
        Unverified(
            commit, f"the last verified commit {short(commit)} has no signed tag any longer"
        ),
    )


def newest(
    bare: BareRepository, spec: RevisionSpec, tip: CommitId, trust: Trust
) -> CommitId | None:
    """The newest first-parent ancestor of the tip with a trusted signature (of a tag: its commit);
    None if none of 200 has one.
    """
    with _keys(trust) as keys:
        if trust.mode is Mode.TAG:
            return tip if isinstance(_tag(bare, spec, tip, keys), Verified) else None
        line = bare.run(
            "rev-list", "--first-parent", "--max-count=200", "--end-of-options", tip
        ).text.split()
        return next(
            (
                CommitId(c)
                for c in line
                if _check(bare, keys.config, keys, "commit", [c]) is not None
            ),
            None,
        )


def _came(bare: BareRepository, since: CommitId, tip: CommitId) -> list[CommitId]:
    """The tip and all its ancestors that are not in the history of `since`, by every parent of a
    merge.
    """
    words = ("rev-list", f"--max-count={MOST + 1}", "--end-of-options", tip, f"^{since}")
    return [CommitId(id) for id in dict.fromkeys((tip, *bare.run(*words).text.split()))]


def _lost(since: CommitId, tip: CommitId) -> str:
    return (
        f"the server no longer has {short(since)}, the last good commit, so later commits are "
        f"unknown: {_agree(tip)}"
    )


def _agree(tip: CommitId) -> str:
    return f"inspect the branch, then approve it with `gitops-ds apply --revision {short(tip)}`"


class _Keys(msgspec.Struct, frozen=True):
    """git's configuration and environment for one check."""

    config: tuple[str, ...]
    environment: dict[str, str]
    without_revoked: tuple[str, ...]


@contextmanager
def _keys(trust: Trust) -> Iterator[_Keys]:
    with verification_keys.directory() as where:
        signers = _write(where / "allowed_signers", trust.signers)
        # An x509 program that fails: S/MIME signatures are not supported.
        base = verification_keys.config(
            "gpg.x509.program=/bin/false",
            f"gpg.ssh.allowedSignersFile={signers}",
            "gpg.minTrustLevel=undefined",
        )
        config = base
        if trust.revoked.strip():
            config = (
                *base,
                "-c",
                f"gpg.ssh.revocationFile={_write(where / 'revoked', trust.revoked)}",
            )
        environment = verification_keys.gnupg(where / "gnupg", trust.openpgp)
        yield _Keys(config, environment, base)


def _write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def _commits(
    bare: BareRepository, commits: Sequence[CommitId], keys: _Keys
) -> Verified | Unverified:
    """The first of the list is the tip. Verifies commits in batches; one by one only to find the
    failed one.
    """
    output = _check(bare, keys.config, keys, "commit", commits[:1])
    if output is None:
        return _fault(bare, commits[0], keys)
    for start in range(1, len(commits), _AT_ONCE):
        some = commits[start : start + _AT_ONCE]
        if _check(bare, keys.config, keys, "commit", some) is None:
            return next(
                _fault(bare, c, keys)
                for c in some
                if _check(bare, keys.config, keys, "commit", [c]) is None
            )
    return Verified(*signer(output), len(commits))


def _check(
    bare: BareRepository, config: tuple[str, ...], keys: _Keys, what: str, ids: Sequence[str]
) -> str | None:
    """Git's output for good signatures; None if one of them is not good."""
    output = bare.run(
        *config,
        f"verify-{what}",
        "--raw",
        *ids,
        environment=keys.environment,
        purpose="verify",
        may_fail=True,
    )
    return output.stderr if output.status == 0 else None


def _fault(bare: BareRepository, commit: CommitId, keys: _Keys) -> Unverified:
    commit_info = object_reader.info(bare, commit)
    return Unverified(
        commit,
        f"commit {short(commit)} ({commit_info.subject!r} by {commit_info.author}) "
        f"{_why(bare, 'commit', commit, keys)}",
    )


def _why(bare: BareRepository, what: str, id: str, keys: _Keys) -> str:
    words = ("verify-" + what, "--raw", id)
    raw = bare.run(
        *keys.config, *words, environment=keys.environment, purpose="verify", may_fail=True
    ).stderr
    reason = complaint(raw)
    if reason is _BAD and _check(bare, keys.without_revoked, keys, what, [id]) is not None:
        return _REVOKED.format(key="the key")
    return reason.format(key=signer(raw)[1] or "a key")


_UNSIGNED = (
    "is not signed: sign it (`git commit -S`, `git tag -s`; an existing one with `git commit "
    "--amend -S`) and push again"
)
_BAD = (
    "has a signature that does not match its content: it was changed after signing; don't trust "
    "it, contact the author of the push"
)
_REVOKED = "is signed with {key}, which is revoked: sign it again with a key that is valid"
_EXPIRED = (
    "is signed with {key}, which is expired, or was not valid yet: sign it again with a valid "
    "key, or renew this one's entry"
)
_UNKNOWN = (
    "is signed with {key}, which is not in the keys of repository.verify: if you trust it, add it "
    "to allowedSignersFile or gpgKeysFile"
)
# In order of severity, since a signature can have several faults.
_COMPLAINTS = (
    (r"^\[GNUPG:\] BADSIG ", _BAD),
    (r"^\[GNUPG:\] REVKEYSIG ", _REVOKED),
    (r"^\[GNUPG:\] (?:EXPKEYSIG|EXPSIG) |: key has expired: |: key is not yet valid: ", _EXPIRED),
    (
        r"^\[GNUPG:\] (?:ERRSIG|NO_PUBKEY) |^No principal matched|^Good \"git\" signature with ",
        _UNKNOWN,
    ),
    (r"^error: no signature found", _UNSIGNED),
)


def complaint(raw: str) -> str:
    """Why git rejected a signature, from the output of gpg and ssh-keygen; `{key}` is a placeholder
    for the key's name.

    https://git.gnupg.org/cgi-bin/gitweb.cgi?p=gnupg.git;a=blob_plain;f=doc/DETAILS
    """
    return next(
        (text for pattern, text in _COMPLAINTS if re.search(pattern, raw, re.MULTILINE)),
        _UNSIGNED if not raw.strip() else _BAD,
    )


def signer(raw: str) -> tuple[str, str]:
    """The signer's name in the trusted keys, and the key's fingerprint; empty if not in the
    output.
    """
    if ssh := re.search(
        r"^Good \"git\" signature (?:for (.+) )?with \S+ key (\S+)$", raw, re.MULTILINE
    ):
        return ssh[1] or "", ssh[2]
    name = re.search(r"^\[GNUPG:\] (?:GOOD|EXPKEY|REVKEY|EXP|BAD)SIG \S+ (.+)$", raw, re.MULTILINE)
    key = re.search(
        r"^\[GNUPG:\] (?:VALIDSIG|ERRSIG|KEY_CONSIDERED|NO_PUBKEY) ([0-9A-F]+)", raw, re.MULTILINE
    )
    return name[1] if name else "", key[1] if key else ""


def _tag(
    bare: BareRepository, spec: RevisionSpec, tip: CommitId, keys: _Keys
) -> Verified | Unverified:
    refs = remote.refs(bare, spec)
    name = revision.tag(spec, refs)
    if name is None:
        raise errors.UsageError(
            f"repository.verify.mode is tag, but the revision is {revision.show(spec)}: set "
            "repository.tag or repository.semver"
        )
    return _tag_named(bare, name, refs, tip, keys)


def _tag_named(
    bare: BareRepository, name: str, refs: Mapping[str, str], tip: CommitId, keys: _Keys
) -> Verified | Unverified:
    id, commit = refs.get(f"refs/tags/{name}"), refs.get(f"refs/tags/{name}^{{}}")
    if id is None or commit is None:
        return Unverified(
            tip,
            f"the tag {name} is a lightweight tag without a signature: create a signed one (`git "
            f"tag -s {name}`)",
        )
    remote.fetch_tag(bare, name)
    return _tag_object(bare, (name, id), tip, keys)


def _tag_object(
    bare: BareRepository, named: tuple[str, str], tip: CommitId, keys: _Keys
) -> Verified | Unverified:
    """Whether a fetched tag, by its name and its own id, is a signed one for the commit."""
    name, id = named
    content = bare.run("cat-file", "tag", id).stdout.decode("utf-8", "replace")
    # The tag's name is part of the signed content only: the server could serve an old tag under a
    # new name.
    if content.split("\n")[:3] != [f"object {tip}", "type commit", f"tag {name}"]:
        return Unverified(
            tip,
            f"the tag {name} at the server is not a tag object of that name for {short(tip)}: "
            "don't trust it",
        )
    output = _check(bare, keys.config, keys, "tag", [id])
    if output is None:
        return Unverified(tip, f"the tag {name} {_why(bare, 'tag', id, keys)}")
    return Verified(*signer(output))


class OpenPgpKey(msgspec.Struct, frozen=True):
    """An OpenPGP key: expiry (seconds since 1970, None: never), and whether it is revoked."""

    expires: float | None
    revoked: bool


def openpgp_keys(keys: bytes) -> list[OpenPgpKey]:
    """The primary keys in a file of public keys; blocking. Raises UsageError for a file without
    any.

    https://git.gnupg.org/cgi-bin/gitweb.cgi?p=gnupg.git;a=blob_plain;f=doc/DETAILS
    """
    if not keys.strip():
        return []
    with verification_keys.directory() as where:
        environment = verification_keys.gnupg(where / "gnupg", keys)
        output = verification_keys.run(
            ("gpg", "--with-colons", "--fixed-list-mode", "--list-keys"), environment
        )
    rows = [line.split(":") for line in output.splitlines() if line.startswith("pub:")]
    return [OpenPgpKey(float(row[6]) if row[6].isdigit() else None, row[1] == "r") for row in rows]
