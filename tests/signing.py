"""Keys for a test, and commits signed with them by real git, gpg and ssh-keygen."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.gitservers import GIT_ENVIRONMENT, Upstream


@dataclass(frozen=True)
class SshSigner:
    """A key pair at `key` and `key.pub` for `name`."""

    name: str
    key: Path

    @property
    def public(self) -> str:
        """The type and the key, without a comment."""
        return " ".join(Path(f"{self.key}.pub").read_text().split()[:2])

    def allowed(self, options: str = "") -> bytes:
        """Its line in allowed_signers."""
        return f"{self.name} {options} {self.public}\n".encode()

    def config(self) -> tuple[str, ...]:
        """git's options for signing with it."""
        return ("-c", "gpg.format=ssh", "-c", f"user.signingKey={self.key}")


def ssh_signer(directory: Path, name: str) -> SshSigner:
    """A new ed25519 key without passphrase."""
    key = directory / name
    subprocess.run(
        ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(key)), check=True
    )
    return SshSigner(name, key)


class Gpg:
    """A user's GnuPG home, with an agent that ends with it."""

    def __init__(self, home: str) -> None:
        self.environment = {**GIT_ENVIRONMENT, "GNUPGHOME": home}

    def run(self, *words: str, input: bytes | None = None) -> bytes:
        """The output of gpg."""
        command = (
            "gpg",
            "--batch",
            "--quiet",
            "--no-tty",
            "--pinentry-mode",
            "loopback",
            "--passphrase",
            "",
            *words,
        )
        done = subprocess.run(
            command, env=self.environment, input=input, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    def signer(self, name: str, *words: str) -> str:
        """The fingerprint of a new key; `words` precede the command, such as a faked time."""
        self.run(
            *words,
            "--quick-generate-key",
            f"{name} <{name}@example.com>",
            "ed25519",
            "sign",
            "1d" if words else "never",
        )
        rows = self.run("--list-keys", "--with-colons", f"{name}@example.com").decode().splitlines()
        return next(row.split(":")[9] for row in rows if row.startswith("fpr:"))

    def public(self, key: str) -> bytes:
        """The armored public key."""
        return self.run("--armor", "--export", key)

    def secret(self, key: str) -> bytes:
        """The armored secret key."""
        return self.run("--armor", "--export-secret-keys", key)

    def revoke(self, key: str) -> None:
        """Revokes the key, with the certificate that gpg created for it."""
        home = Path(self.environment["GNUPGHOME"])
        certificate = (
            (home / "openpgp-revocs.d" / f"{key}.rev")
            .read_text()
            .replace(":-----BEGIN", "-----BEGIN")
        )
        self.run("--import", input=certificate.encode())


@contextmanager
def gpg() -> Iterator[Gpg]:
    """A GnuPG home; in /tmp, since its sockets need a short path."""
    with tempfile.TemporaryDirectory(prefix="gpg-", dir="/tmp", ignore_cleanup_errors=True) as home:
        gpg_home = Gpg(home)
        try:
            yield gpg_home
        finally:
            subprocess.run(("gpgconf", "--kill", "all"), env=gpg_home.environment, check=False)


def commit(
    upstream: Upstream, text: str, *config: str, environment: Mapping[str, str] = os.environ
) -> str:
    """A commit on the current branch, signed by the options (none: unsigned)."""
    (upstream.work / "x.yaml").write_text(f"a: {text}\n")
    upstream.git("add", "--all")
    signed = ("--gpg-sign",) if config else ()
    return _git(
        upstream,
        environment,
        *config,
        "commit",
        "--quiet",
        *signed,
        "--allow-empty",
        "--message",
        text,
    )


def tag(
    upstream: Upstream, name: str, *config: str, environment: Mapping[str, str] = os.environ
) -> str:
    """A signed tag of HEAD."""
    return _git(upstream, environment, *config, "tag", "--sign", "--message", name, name)


def merge(upstream: Upstream, branch: str, *config: str) -> str:
    """A signed merge commit on the current branch."""
    return _git(
        upstream,
        os.environ,
        *config,
        "merge",
        "--quiet",
        "--no-ff",
        "--gpg-sign",
        "--message",
        "merge",
        "-Xours",
        branch,
    )


def _git(upstream: Upstream, environment: Mapping[str, str], *words: str) -> str:
    home = {"GNUPGHOME": environment["GNUPGHOME"]} if "GNUPGHOME" in environment else {}
    place = {"GIT_DIR": str(upstream.path), "GIT_WORK_TREE": str(upstream.work)}
    done = subprocess.run(
        ("git", *words),
        env={**GIT_ENVIRONMENT, **home, **place},
        cwd=upstream.work,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return upstream.git("rev-parse", "HEAD")
