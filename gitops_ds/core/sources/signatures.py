"""The trusted signers of commits, and the result of a verification."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from gitops_ds.core.objects import CommitId


class Mode(StrEnum):
    """What must be signed: nothing, the tip, every commit after the last good one, or the followed
    tag.
    """

    NONE = "none"
    HEAD = "head"
    ALL = "all"
    TAG = "tag"


@dataclass(frozen=True, slots=True)
class Trust:
    """The required signatures and the trusted signers.

    `signers` is an allowed_signers file and `revoked` a list of revoked keys, both as ssh-keygen
    reads them; `openpgp` is an armored file of OpenPGP public keys.
    https://man.openbsd.org/ssh-keygen.1#ALLOWED_SIGNERS
    """

    mode: Mode = Mode.NONE
    signers: bytes = field(default=b"", repr=False)
    revoked: bytes = field(default=b"", repr=False)
    openpgp: bytes = field(default=b"", repr=False)


class Verified(msgspec.Struct, frozen=True):
    """The required signatures are valid. `signer` and `key` are those of the tip or the tag;
    `checked` counts signatures.
    """

    signer: str
    key: str
    checked: int = 1


class Unverified(msgspec.Struct, frozen=True):
    """The untrusted commit, and a message with the reason and the solution."""

    commit: CommitId
    message: str
