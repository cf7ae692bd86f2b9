"""The signing of our own commits: with a key from the settings, or in a command with the user's git
configuration.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from gitops_ds import errors
from gitops_ds.git import verification_keys


class KeyFormat(StrEnum):
    """Kinds of keys; the values are git's gpg.format."""

    SSH = "ssh"
    OPENPGP = "openpgp"


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key without passphrase: in OpenSSH or PEM form, or OpenPGP as `gpg --armor
    --export-secret-keys` writes it.
    """

    private: bytes = field(repr=False)
    format: KeyFormat = KeyFormat.SSH


class UserSigningConfig(msgspec.Struct, frozen=True):
    """The signing settings of the user's git."""

    settings: tuple[tuple[str, str], ...]


Signing = SigningKey | UserSigningConfig


@contextmanager
def prepared(signing: Signing) -> Iterator[tuple[tuple[str, ...], Mapping[str, str]]]:
    """git's options for a command that signs, and its environment; keys are on the disk only inside
    the context. Raises UsageError.
    """
    match signing:
        case UserSigningConfig(settings):
            yield tuple(word for name, value in settings for word in ("-c", f"{name}={value}")), {}
        case SigningKey(private, format) if format is KeyFormat.SSH:
            with verification_keys.directory() as where:
                file = where / "key"
                # ssh-keygen refuses a key that others can read, as they often can a mounted one
                file.touch(mode=0o600)
                file.write_bytes(private.rstrip(b"\n") + b"\n")
                yield verification_keys.config("gpg.format=ssh", f"user.signingKey={file}"), {}
        case SigningKey(private):
            with verification_keys.directory() as where:
                environment = verification_keys.gnupg(where / "gnupg", private)
                try:
                    listed = verification_keys.run(
                        ("gpg", "--with-colons", "--list-secret-keys"), environment
                    )
                    match = re.search(r"^fpr:(?::*)([0-9A-F]{40,}):", listed, re.MULTILINE)
                    if match is None:
                        raise errors.UsageError(
                            "the OpenPGP signing key is not a secret key: `gpg --armor "
                            "--export-secret-keys`"
                        )
                    yield (
                        verification_keys.config(
                            "gpg.format=openpgp", f"user.signingKey={match[1]}"
                        ),
                        environment,
                    )
                finally:
                    verification_keys.release(environment)
