"""Signed commits and tags, by real ssh and OpenPGP keys: the trusted signers, and the messages
about the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from gitops_ds.core import errors
from gitops_ds.core.objects import CommitId
from gitops_ds.core.sources.signatures import Mode, Trust, Unverified, Verified
from gitops_ds.core.values import replace
from gitops_ds.source.git import address, signatures, verification_keys
from gitops_ds.source.git.credentials.credential_values import Credentials, Password
from gitops_ds.source.git.repository import Repository
from gitops_ds.source.git.revision import Branch, RevisionSpec, Semver, Tag
from tests import gitservers, signing
from tests.gitservers import Upstream
from tests.signing import Gpg, SshSigner

pytestmark = pytest.mark.system
MAIN = Branch("main")


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return Upstream(tmp_path / "upstream")


@pytest.fixture
def ada(tmp_path: Path) -> SshSigner:
    return signing.ssh_signer(tmp_path, "ada@example.com")


@pytest.fixture
def eve(tmp_path: Path) -> SshSigner:
    return signing.ssh_signer(tmp_path, "eve@example.com")


@pytest.fixture(scope="module")
def gpg() -> Iterator[Gpg]:
    with signing.gpg() as home:
        yield home


def verified(
    upstream: Upstream, trust: Trust, *, since: str | None = None, spec: RevisionSpec = MAIN
) -> Verified | Unverified:
    async def run() -> Verified | Unverified:
        where = address.parse(str(upstream.path), allow_local=True)
        async with Repository(where, upstream.path.with_suffix(".cache")) as repository:
            tip = await repository.tip(spec)
            await repository.fetch(tip)
            return await repository.verify(spec, tip, CommitId(since) if since else None, trust)

    return asyncio.run(run())


def refused(verification: Verified | Unverified, words: str) -> Unverified:
    assert isinstance(verification, Unverified), verification
    assert words in verification.message
    return verification


def test_a_commit_of_an_allowed_ssh_key_is_good_and_names_its_signer(
    upstream: Upstream, ada: SshSigner
) -> None:
    signing.commit(upstream, "1", *ada.config())
    verification = verified(upstream, Trust(Mode.HEAD, ada.allowed('namespaces="git"')))
    assert isinstance(verification, Verified)
    assert verification.signer == "ada@example.com"
    assert verification.key.startswith("SHA256:")


def test_a_commit_of_a_known_openpgp_key_is_good_and_names_its_signer(
    upstream: Upstream, gpg: Gpg
) -> None:
    key = gpg.signer("grace")
    signing.commit(upstream, "1", "-c", f"user.signingKey={key}", environment=gpg.environment)
    verification = verified(upstream, Trust(Mode.HEAD, openpgp=gpg.public(key)))
    assert verification == Verified("grace <grace@example.com>", key)


def test_an_unsigned_commit_is_refused_by_name(upstream: Upstream, ada: SshSigner) -> None:
    commit = signing.commit(upstream, "sneaky")
    verification = refused(
        verified(upstream, Trust(Mode.HEAD, ada.allowed())), "is not signed: sign it"
    )
    assert verification.commit == commit
    assert "'sneaky' by Ada <ada@example.com>" in verification.message


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("a stranger", "is not in the keys of repository.verify"),
        ("no allowed signer", "is not in the keys of repository.verify"),
        ("another namespace", "does not match its content|not in the keys of"),
        ("expired", "expired"),
        ("not yet", "not valid yet"),
        ("revoked", "is revoked"),
    ],
)
def test_an_ssh_key_that_does_not_count_is_refused_with_the_reason(
    upstream: Upstream, ada: SshSigner, eve: SshSigner, case: str, words: str
) -> None:
    signing.commit(upstream, "1", *eve.config())
    trust = {
        "a stranger": Trust(Mode.HEAD, ada.allowed()),
        "no allowed signer": Trust(Mode.HEAD),
        "another namespace": Trust(Mode.HEAD, eve.allowed('namespaces="file"')),
        "expired": Trust(Mode.HEAD, eve.allowed('valid-before="20200101"')),
        "not yet": Trust(Mode.HEAD, eve.allowed('valid-after="20400101"')),
        "revoked": Trust(Mode.HEAD, eve.allowed(), revoked=eve.public.encode()),
    }[case]
    verification = verified(upstream, trust)
    assert isinstance(verification, Unverified)
    assert any(word in verification.message for word in words.split("|")), verification.message
    assert "eve@example.com" not in verification.message or case == "revoked"


@pytest.mark.parametrize(
    ("case", "words"),
    [("a stranger", "not in the keys of"), ("expired", "expired"), ("revoked", "is revoked")],
)
def test_an_openpgp_key_that_does_not_count_is_refused_with_the_reason(
    upstream: Upstream, case: str, words: str
) -> None:
    with signing.gpg() as gpg:
        early = ("--faked-system-time", "20200101T000000") if case == "expired" else ()
        key, other = gpg.signer("grace", *early), gpg.signer("other")
        program = upstream.path.with_suffix(".gpg")
        program.write_text(f'#!/bin/sh\nexec gpg {" ".join(early)} "$@"\n')
        program.chmod(0o700)
        signing.commit(
            upstream,
            "1",
            "-c",
            f"gpg.program={program}",
            "-c",
            f"user.signingKey={key}",
            environment=gpg.environment,
        )
        if case == "revoked":
            gpg.revoke(key)
        public = gpg.public(other if case == "a stranger" else key)
    verification = refused(verified(upstream, Trust(Mode.HEAD, openpgp=public)), words)
    assert key in verification.message or case == "a stranger"


def test_a_commit_changed_after_it_was_signed_is_refused(
    upstream: Upstream, ada: SshSigner, gpg: Gpg
) -> None:
    key = gpg.signer("mallory")
    for config, trust in (
        (ada.config(), Trust(Mode.HEAD, ada.allowed())),
        (("-c", f"user.signingKey={key}"), Trust(Mode.HEAD, openpgp=gpg.public(key))),
    ):
        signing.commit(upstream, "good", *config, environment=gpg.environment)
        content = upstream.git("cat-file", "commit", "HEAD").replace("\ngood", "\nevil") + "\n"
        forged = upstream.git(
            "hash-object", "-t", "commit", "-w", "--stdin", input=content.encode()
        )
        upstream.git("update-ref", "refs/heads/main", forged)
        refused(verified(upstream, trust), "does not match its content")


def test_configuration_of_the_repository_or_the_person_switches_nothing_off(
    upstream: Upstream, ada: SshSigner, eve: SshSigner, tmp_path: Path
) -> None:
    """Neither files in the commit, nor the upstream's own configuration, nor that of our copy have
    an effect.
    """
    yes = tmp_path / "yes"
    yes.write_text(
        '#!/bin/sh\necho "Good \\"git\\" signature for ada@example.com with ED25519 key SHA256:x"\n'
    )
    yes.chmod(0o700)
    evil = (
        f'[gpg]\nformat = ssh\nprogram = {yes}\n[gpg "ssh"]\nprogram = {yes}\nallowedSignersFile '
        f"= {tmp_path}/evil\n"
    )
    (tmp_path / "evil").write_bytes(eve.allowed())
    (upstream.work / ".gitconfig").write_text(evil)
    (upstream.work / "allowed_signers").write_bytes(eve.allowed())
    with (upstream.path / "config").open("a") as file:
        file.write(evil)
    signing.commit(upstream, "1", *eve.config(), "-c", "gpg.ssh.program=ssh-keygen")
    trust = Trust(Mode.HEAD, ada.allowed())
    refused(verified(upstream, trust), "not in the keys of")
    (ours,) = upstream.path.with_suffix(".cache").glob("*.git")
    with (ours / "config").open("a") as file:
        file.write(evil)
    refused(verified(upstream, trust), "not in the keys of")


def test_mode_head_verifies_the_tip_and_mode_all_every_new_commit(
    upstream: Upstream, ada: SshSigner
) -> None:
    old = signing.commit(upstream, "before the rule")
    good = signing.commit(upstream, "good", *ada.config())
    bad = signing.commit(upstream, "sneaky")
    signing.commit(upstream, "tip", *ada.config())
    every = Trust(Mode.ALL, ada.allowed())
    assert isinstance(verified(upstream, replace(every, mode=Mode.HEAD), since=good), Verified)
    assert refused(verified(upstream, every, since=good), "'sneaky'").commit == bad
    assert isinstance(verified(upstream, every, since=bad), Verified)
    refused(verified(upstream, every, since=old), "'sneaky'")
    assert isinstance(verified(upstream, every), Verified), (
        "without a last good commit the tip is where trust begins"
    )


def test_every_commit_of_a_merge_must_be_signed(upstream: Upstream, ada: SshSigner) -> None:
    good = signing.commit(upstream, "good", *ada.config())
    upstream.git("checkout", "--quiet", "-b", "side")
    signing.commit(upstream, "side 1", *ada.config())
    bad = signing.commit(upstream, "side 2")
    signing.commit(upstream, "side 3", *ada.config())
    upstream.git("checkout", "--quiet", "main")
    signing.commit(upstream, "main 2", *ada.config())
    signing.merge(upstream, "side", *ada.config())
    every = Trust(Mode.ALL, ada.allowed())
    assert refused(verified(upstream, every, since=good), "'side 2'").commit == bad
    verification = verified(upstream, every, since=bad)
    assert isinstance(verification, Verified)
    assert verification.checked == 3


def test_more_commits_than_one_git_process_accepts_are_all_verified(
    upstream: Upstream, ada: SshSigner
) -> None:
    since = signing.commit(upstream, "start", *ada.config())
    bad = signing.commit(upstream, "sneaky")
    for n in range(102):
        signing.commit(upstream, f"{n}", *ada.config())
    every = Trust(Mode.ALL, ada.allowed())
    verification = verified(upstream, every, since=bad)
    assert isinstance(verification, Verified)
    assert verification.checked == 102
    assert refused(verified(upstream, every, since=since), "'sneaky'").commit == bad


def test_a_last_good_commit_that_the_server_lost_needs_consent(
    upstream: Upstream, ada: SshSigner
) -> None:
    signing.commit(upstream, "1", *ada.config())
    refused(
        verified(upstream, Trust(Mode.ALL, ada.allowed()), since="1" * 40),
        "gitops-ds apply --revision",
    )


def test_a_signed_tag_is_good_for_its_own_name_and_commit_only(
    upstream: Upstream, ada: SshSigner, eve: SshSigner
) -> None:
    signing.commit(upstream, "1")
    signing.tag(upstream, "v1.0.0", *ada.config())
    trust = Trust(Mode.TAG, ada.allowed())
    for spec in (Tag("v1.0.0"), Semver(">=1")):
        verification = verified(upstream, trust, spec=spec)
        assert isinstance(verification, Verified)
        assert verification.signer == "ada@example.com"
    refused(
        verified(upstream, Trust(Mode.TAG, eve.allowed()), spec=Tag("v1.0.0")),
        "not in the keys of",
    )
    # The old tag under a new name would bring an old version back.
    upstream.git("update-ref", "refs/tags/v2.0.0", upstream.git("rev-parse", "refs/tags/v1.0.0"))
    refused(verified(upstream, trust, spec=Semver(">=1")), "is not a tag object of that name")
    upstream.git("tag", "v3.0.0")
    refused(verified(upstream, trust, spec=Semver(">=1")), "without a signature")
    upstream.git("tag", "--annotate", "--message", "unsigned", "v4.0.0")
    refused(verified(upstream, trust, spec=Semver(">=1")), "is not signed")
    with pytest.raises(errors.UsageError, match=r"set repository\.tag or repository\.semver"):
        verified(upstream, trust)


def test_while_the_server_is_unreachable_fetched_signatures_verify_the_last_good_commit(
    tmp_path: Path, ada: SshSigner, eve: SshSigner
) -> None:
    async def verified_while_away() -> list[type[Verified | Unverified]]:
        reference, cache = Tag("v1.0.0"), tmp_path / "cache"
        with gitservers.http_git_server(tmp_path / "git") as server:
            upstream = server.repository("fleet")
            signing.commit(upstream, "1", *ada.config())
            signing.tag(upstream, "v1.0.0", *ada.config())
            where = address.parse(f"{server.url}/fleet")
            own = Credentials(Password(server.password, server.user), server.authority)
            async with Repository(where, cache, own) as repository:
                tip = await repository.tip(reference)
                assert not await repository.has(tip)
                await repository.fetch(tip)
                assert isinstance(
                    await repository.verify(reference, tip, None, Trust(Mode.TAG, ada.allowed())),
                    Verified,
                )
        async with Repository(where, cache, own) as repository:
            assert await repository.has(tip)
            trusts = [
                Trust(mode, signer.allowed())
                for mode in (Mode.TAG, Mode.HEAD, Mode.ALL)
                for signer in (ada, eve)
            ]
            return [type(await repository.verify_kept(reference, tip, trust)) for trust in trusts]

    assert asyncio.run(verified_while_away()) == [Verified, Unverified] * 3


def test_an_openpgp_signed_tag_is_good(upstream: Upstream, gpg: Gpg) -> None:
    key = gpg.signer("tagger")
    signing.commit(upstream, "1")
    signing.tag(upstream, "v1", "-c", f"user.signingKey={key}", environment=gpg.environment)
    assert verified(upstream, Trust(Mode.TAG, openpgp=gpg.public(key)), spec=Tag("v1")) == Verified(
        "tagger <tagger@example.com>", key
    )


def test_a_file_without_a_key_is_refused(upstream: Upstream) -> None:
    signing.commit(upstream, "1")
    with pytest.raises(errors.UsageError, match="no OpenPGP key"):
        verified(upstream, Trust(Mode.HEAD, openpgp=b"no key\n"))


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ("", "is not signed"),
        ("[GNUPG:] GOODSIG 1 ada\n[GNUPG:] BADSIG 2 eve\n", "does not match its content"),
        ("[GNUPG:] EXPKEYSIG 1 ada\n[GNUPG:] REVKEYSIG 2 eve\n", "revoked"),
        ("[GNUPG:] EXPSIG 1 ada\n", "expired"),
        ("[GNUPG:] ERRSIG 1 22 8 00 1 9 F\n", "not in the keys of"),
        ("something new\n", "does not match its content"),
    ],
)
def test_the_most_severe_of_several_complaints_is_reported(raw: str, words: str) -> None:
    assert words in signatures.complaint(raw)


def test_keys_are_private_and_deleted_after_use() -> None:
    with verification_keys.directory() as where:
        assert where.stat().st_mode & 0o777 == 0o700
        verification_keys.gnupg(where / "gnupg", b"")
    assert not where.exists()
