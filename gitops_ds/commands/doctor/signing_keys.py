"""The checks of `doctor` for trusted keys: lines without a key, and expired keys."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import Iterator
from datetime import UTC, datetime

from gitops_ds import errors
from gitops_ds.commands.doctor.result import CheckVerdict, Line
from gitops_ds.git import signatures
from gitops_ds.model.sources.signatures import Trust
from gitops_ds.service.git import git_auth
from gitops_ds.settings.repository import RepositorySettings

_NAME = "signature keys"
_WRITE = (
    'write `someone@example.com namespaces="git" ssh-ed25519 AAAA…`, a line each; '
    "docs/repository-access.md shows it"
)
_RENEW = "let their owners renew them, and put the new ones into the file"
# https://man.openbsd.org/ssh-keygen.1#ALLOWED_SIGNERS
_OPTION = r'[a-z-]+(?:="[^"]*")?'
_SIGNER = re.compile(
    rf"\S+\s+(?P<options>(?:{_OPTION}(?:,{_OPTION})*\s+)??)(?P<type>(?:ssh|ecdsa|sk)-\S+)\s+(?P<key>\S+)"
)
_BEFORE = re.compile(r'valid-before="(\d{8})(\d{4})?(\d{2})?(Z?)"')


async def lines(settings: RepositorySettings, display: str, now: float) -> list[Line]:
    """One line without problems, else one for each problem; `now` in seconds since 1970."""
    try:
        trust = git_auth.trust_of(settings)
        openpgp = await asyncio.to_thread(signatures.openpgp_keys, trust.openpgp)
    except errors.GitopsError as error:
        return [
            Line(
                _NAME,
                CheckVerdict.BAD,
                str(error),
                "docs/repository-access.md describes each setting",
            )
        ]
    troubles = list(_of_signers(trust))
    ends = [end for _, end in _signers(trust)] + [key.expires for key in openpgp if not key.revoked]
    valid = sum(end is None or end > now for end in ends)
    past = len(ends) - valid + sum(key.revoked for key in openpgp)
    if not valid:
        troubles.append(
            Line(
                _NAME,
                CheckVerdict.BAD,
                f"{display}: no key is valid: all {past} are expired or revoked",
                _RENEW,
            )
        )
    elif past:
        troubles.append(
            Line(
                _NAME,
                CheckVerdict.WARNING,
                f"{display}: {past} of {past + valid} keys are expired or revoked",
                _RENEW,
            )
        )
    return troubles or [Line(_NAME, CheckVerdict.OK, f"{display}: {valid} keys are valid")]


def _of_signers(trust: Trust) -> Iterator[Line]:
    numbers = {number for number, _ in _signers(trust)}
    for number, _ in _written(trust):
        if number not in numbers:
            yield Line(
                _NAME,
                CheckVerdict.BAD,
                f"repository.verify.allowedSignersFile: line {number} names no key",
                _WRITE,
            )


def _written(trust: Trust) -> list[tuple[int, str]]:
    texts = enumerate(trust.signers.decode("utf-8", "replace").splitlines(), 1)
    return [
        (number, text.strip())
        for number, text in texts
        if text.strip() and not text.lstrip().startswith("#")
    ]


def _signers(trust: Trust) -> Iterator[tuple[int, float | None]]:
    """The number of each line with a key, and the key's expiry."""
    for number, text in _written(trust):
        match = _SIGNER.match(text)
        if match is None or not _is_key(match["type"], match["key"]):
            continue
        before = _BEFORE.search(match["options"])
        yield number, _moment(before) if before else None


def _is_key(type: str, text: str) -> bool:
    """Whether the text is a key of that type: it begins with the type's name, after its length in
    four bytes.
    """
    try:
        return base64.b64decode(text, validate=True)[4:].startswith(type.encode())
    except (binascii.Error, ValueError):
        return False


def _moment(before: re.Match[str]) -> float | None:
    """A time in ssh-keygen's format; without a Z it is local time, which is UTC in a pod."""
    try:
        digits = f"{before[1]}{before[2] or '0000'}{before[3] or '00'}"
        return datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
