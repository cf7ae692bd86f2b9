"""What we write is signed so that our own check takes it; at a desk as the person's git would."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gitops_ds.core import errors
from gitops_ds.core.sources.signatures import Mode, Trust, Unverified, Verified
from gitops_ds.source.git import address
from gitops_ds.source.git.commit_writer import CommitReason, Signature
from gitops_ds.source.git.repository import Repository
from gitops_ds.source.git.revision import Branch
from gitops_ds.source.git.signing import KeyFormat, Signing, SigningKey
from tests import signing
from tests.gitservers import GIT_ENVIRONMENT, Upstream
from tests.signing import Gpg

pytestmark = pytest.mark.system
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def gpg() -> Iterator[Gpg]:
    with signing.gpg() as home:
        yield home


def reverted(tmp_path: Path, own: Signing | None, trust: Trust) -> Verified | Unverified:
    """Our verification of a revert that we wrote and pushed, and of every commit before it."""
    upstream = Upstream(tmp_path / "upstream")
    first = upstream.commit({"x.yaml": "a: 1\n"})
    bad = upstream.commit({"x.yaml": "a: 2\n"})

    async def run() -> Verified | Unverified:
        where = address.parse(str(upstream.path), allow_local=True)
        async with Repository(where, tmp_path / "cache") as repository:
            tip = await repository.tip(Branch("main"))
            assert tip == bad
            await repository.fetch(tip)
            commit = await repository.revert(
                tip,
                {tip: None},
                CommitReason("too slow", Signature("Bot", "bot@example.com", NOW, own)),
            )
            await repository.push(commit, "main", tip)
            assert (await repository.info(commit)).parents == (bad,)
            return await repository.verify(Branch("main"), commit, tip, trust)

    assert first != bad
    return asyncio.run(run())


def test_our_verification_accepts_a_revert_signed_with_an_ssh_key(tmp_path: Path) -> None:
    bot = signing.ssh_signer(tmp_path, "bot@example.com")
    verification = reverted(
        tmp_path, SigningKey(bot.key.read_bytes()), Trust(Mode.ALL, bot.allowed())
    )
    assert isinstance(verification, Verified)
    assert verification.signer == "bot@example.com"


def test_our_verification_accepts_a_revert_signed_with_an_openpgp_key(
    tmp_path: Path, gpg: Gpg
) -> None:
    key = gpg.signer("bot")
    verification = reverted(
        tmp_path,
        SigningKey(gpg.secret(key), KeyFormat.OPENPGP),
        Trust(Mode.ALL, openpgp=gpg.public(key)),
    )
    assert verification == Verified("bot <bot@example.com>", key)


def test_without_a_key_it_is_not_signed(tmp_path: Path) -> None:
    bot = signing.ssh_signer(tmp_path, "bot@example.com")
    assert isinstance(reverted(tmp_path, None, Trust(Mode.HEAD, bot.allowed())), Unverified)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("no key", "ssh key can't be read"),
        ("a passphrase", "without a passphrase"),
        ("no openpgp key", "no OpenPGP key"),
        ("a public openpgp key", "not a secret key"),
    ],
)
def test_a_key_that_can_not_sign_is_reported(
    tmp_path: Path, gpg: Gpg, case: str, words: str
) -> None:
    locked = tmp_path / "locked"
    subprocess.run(
        ("ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", str(locked)), check=True
    )
    own = {
        "no key": SigningKey(b"no key\n"),
        "a passphrase": SigningKey(locked.read_bytes()),
        "no openpgp key": SigningKey(b"no key\n", KeyFormat.OPENPGP),
        "a public openpgp key": SigningKey(
            gpg.public(gpg.signer(case.replace(" ", "-"))), KeyFormat.OPENPGP
        ),
    }[case]
    with pytest.raises(errors.GitopsError, match=words):
        reverted(tmp_path, own, Trust(Mode.HEAD))


@pytest.mark.parametrize("signs", [True, False])
def test_the_git_configuration_of_a_user_can_request_signatures(
    tmp_path: Path, signs: bool
) -> None:
    """In a process of its own, whose home is that of the person, with the setting in an included
    file.
    """
    ada = signing.ssh_signer(tmp_path, "ada@example.com")
    (tmp_path / ".gitconfig").write_text(
        "[include]\npath = more\n[user]\nname = Ada\nemail = ada@example.com\n"
    )
    (tmp_path / "more").write_text(
        f"[commit]\ngpgSign = {str(signs).lower()}\n[gpg]\nformat = ssh\n[user]\nsigningKey = "
        f"{ada.key}.pub\n"
    )
    program = (
        "from gitops_ds.source.git import signing; print(signing.of_user(None), "
        "signing.name_and_mail(None))"
    )
    own = {
        name: value for name, value in GIT_ENVIRONMENT.items() if not name.startswith("GIT_")
    } | {"HOME": str(tmp_path)}
    run = subprocess.run(
        (sys.executable, "-c", program),
        cwd=tmp_path,
        env=own,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout.startswith("UserSigningConfig(" if signs else "None "), run.stderr
    assert "'Ada', 'ada@example.com'" in run.stdout
    if signs:
        assert f"('user.signingkey', '{ada.key}.pub')" in run.stdout
