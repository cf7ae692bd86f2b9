"""Keys for gpg and ssh-keygen in a private directory, removed after one use."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gitops_ds.core import errors

SECONDS = 60.0
# It has only the imported keys, so all are trusted; without network.
_GPG = (
    "batch\ntrust-model "
    "always\nno-auto-key-retrieve\nno-auto-key-locate\ndisable-dirmngr\nno-greeting\n"
)


@contextlib.contextmanager
def directory() -> Iterator[Path]:
    """A directory that only this user can read; its path is short, since gpg creates sockets below
    it.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="gds-", ignore_cleanup_errors=True) as where:
            yield Path(where)
    except OSError as error:
        raise errors.SourceError(
            f"keys can't be stored in {tempfile.gettempdir()}: {error.strerror}"
        ) from None


def config(*more: str) -> tuple[str, ...]:
    """The options with which git runs gpg and ssh-keygen from the PATH, regardless of its
    configuration, with `more` pairs.
    """
    pairs = ("gpg.program=gpg", "gpg.openpgp.program=gpg", "gpg.ssh.program=ssh-keygen", *more)
    return tuple(word for pair in pairs for word in ("-c", pair))


def gnupg(home: Path, keys: bytes) -> dict[str, str]:
    """The environment in which gpg has only these keys (armored or binary).

    Raises UsageError for content without a key, or if gpg is missing. Without keys gpg is not run.
    """
    home.mkdir(mode=0o700)
    (home / "gpg.conf").write_text(_GPG)
    environment = {"GNUPGHOME": str(home)}
    if keys.strip():
        status = run(("gpg", "--status-fd=1", "--import"), environment, keys)
        if "[GNUPG:] IMPORT_OK " not in status:
            raise errors.UsageError(
                "no OpenPGP key can be read from the given file: export one with `gpg --armor "
                "--export`"
            )
    return environment


def opens(private_key: bytes) -> bool:
    """Whether ssh can use the text as a private key, which must not have a passphrase."""
    with directory() as where:
        file = where / "key"
        file.touch(mode=0o600)
        file.write_bytes(private_key.rstrip(b"\n") + b"\n")
        return bool(run(("ssh-keygen", "-y", "-P", "", "-f", str(file)), {}))


def knows(known_hosts: bytes, host: str, port: int) -> bool:
    """Whether lines of known_hosts, hashed or not, contain a host."""
    with directory() as where:
        (where / "known_hosts").write_bytes(known_hosts)
        name = host if port == 22 else f"[{host}]:{port}"
        return bool(run(("ssh-keygen", "-F", name, "-f", str(where / "known_hosts")), {}))


def release(environment: dict[str, str]) -> None:
    """Stops the agent that gpg started for a secret key."""
    with contextlib.suppress(errors.GitopsError):
        run(("gpgconf", "--kill", "all"), environment)


def run(words: tuple[str, ...], environment: dict[str, str], input: bytes = b"") -> str:
    """The stdout of a program, regardless of its exit code. Raises UsageError if it is missing,
    SourceError if it hangs.
    """
    clean = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", **environment}
    try:
        done = subprocess.run(  # noqa: S603  our own words
            words, env=clean, input=input, capture_output=True, timeout=SECONDS, check=False
        )
    except FileNotFoundError:
        package = "gnupg" if words[0].startswith("gpg") else "openssh-client"
        raise errors.UsageError(f"{words[0]} is not installed: install {package}") from None
    except subprocess.TimeoutExpired:
        raise errors.SourceError(f"{words[0]} did not finish within {SECONDS:g} s") from None
    return done.stdout.decode("utf-8", "replace")
