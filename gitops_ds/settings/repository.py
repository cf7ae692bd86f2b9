"""The settings of a repository: where it is, how often it is looked at, who we are there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gitops_ds.deployer.reconcile import ApplyOptions
from gitops_ds.errors import SettingsError
from gitops_ds.model.signatures import Mode
from gitops_ds.settings import durations, notify
from gitops_ds.settings.notify import ForgeSettings

_PROXY = re.compile(
    r"https?://[A-Za-z0-9.-]+(?::[0-9]{1,5})?/?|https?://\[[0-9A-Fa-f:.]+\](?::[0-9]{1,5})?/?"
)


@dataclass(frozen=True, slots=True)
class VerifySettings:
    """What must be signed; the files name whose signatures count. `follows_rewrites`: a force-push
    waits for no consent.
    """

    mode: Mode = Mode.NONE
    allowed_signers_file: str = ""
    revoked_keys_file: str = ""
    gpg_keys_file: str = ""
    follows_rewrites: bool = True


@dataclass(frozen=True, slots=True)
class AuthorSettings:
    """Who writes our own commits, and with which key they are signed (no file: not at all);
    `format` is git's gpg.format.
    """

    name: str
    email: str
    signing_key_file: str = ""
    format: str = "ssh"


@dataclass(frozen=True, slots=True)
class RepositorySettings:
    """Which repository, and how often it is looked at; times in seconds. Credentials are names of
    files.

    `apply` is how its commits are applied, None where only the common settings say so.
    """

    url: str = ""
    branch: str = ""
    tag: str = ""
    semver: str = ""
    commit: str = ""
    ref: str = ""
    path: str = ""
    allow_local: bool = False
    interval: float = 60.0
    jitter: float = 6.0
    retry_interval: float = 15.0
    timeout: float = 60.0
    limits: Mapping[str, int] = field(default_factory=dict)
    credentials: tuple[Mapping[str, Any], ...] = ()
    proxy: str = ""
    verify: VerifySettings = VerifySettings()
    author: AuthorSettings | None = None
    schedule: str = ""
    timezone: str = "UTC"
    webhook_secret_file: str = ""
    forge: ForgeSettings | None = None
    apply: ApplyOptions | None = None


def parse(told: Mapping[str, Any]) -> RepositorySettings:
    """The settings of a document that its schema found right."""
    texts = {
        name: str(told[name])
        for name in (
            "url",
            "branch",
            "tag",
            "semver",
            "commit",
            "ref",
            "path",
            "schedule",
            "timezone",
        )
        if name in told
    }
    times = {"interval": "interval", "retryInterval": "retry_interval", "timeout": "timeout"}
    seconds_of = {
        ours: durations.seconds(told[theirs]) for theirs, ours in times.items() if theirs in told
    }
    named = {**texts, **seconds_of, "allow_local": bool(told.get("allowLocal"))}
    found = replace(RepositorySettings(), **named)  # type: ignore[arg-type]
    found = replace(found, jitter=_jitter(told.get("jitter", "10%"), found.interval))
    found = replace(
        found,
        verify=_verify(told.get("verify") or {}, found),
        author=_author(told.get("author") or {}),
    )
    found = replace(found, webhook_secret_file=(told.get("webhook") or {}).get("secretFile") or "")
    found = replace(found, forge=notify.forge(told.get("forge") or {}))
    return replace(
        found,
        limits=told.get("limits") or {},
        credentials=_credentials(told),
        proxy=_proxy(told.get("proxy") or "", found),
    )


def _credentials(told: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """One for the repository itself, or a list, in which each says where it may go."""
    found = told.get("credentials") or ()
    if isinstance(found, Mapping):
        return (found,)
    if any("match" not in one for one in found):
        raise SettingsError(
            "repository.credentials: each of a list needs match: https://HOST/PATH or "
            "ssh://HOST/PATH"
        )
    return tuple(found)


def _proxy(said: str, found: RepositorySettings) -> str:
    if said and not _PROXY.fullmatch(said):
        raise SettingsError(
            "repository.proxy must be http://HOST:PORT or https://HOST:PORT, without a user or a "
            "password"
        )
    if said and not found.url.lower().startswith("https://"):
        raise SettingsError("repository.proxy is for https:// only; ssh goes there by itself")
    return said


def _verify(told: Mapping[str, str], found: RepositorySettings) -> VerifySettings:
    said = told.get("mode") or ("head" if told.keys() - {"forcePush"} else "none")
    mode = Mode("head" if said == "commit" else said)
    # Under `all` each commit is to be signed, but no signature names a branch: a force-push could
    # bring commits of another one.
    follows = told["forcePush"] == "follow" if "forcePush" in told else mode is not Mode.ALL
    signers, revoked, openpgp = (
        told.get(name) or "" for name in ("allowedSignersFile", "revokedKeysFile", "gpgKeysFile")
    )
    made = VerifySettings(mode, signers, revoked, openpgp, follows)
    if mode is not Mode.NONE and not (made.allowed_signers_file or made.gpg_keys_file):
        raise SettingsError(
            f"repository.verify.mode is {said}, but nobody's signature counts: name "
            "allowedSignersFile or gpgKeysFile"
        )
    if mode is Mode.TAG and not (found.tag or found.semver or found.ref.startswith("refs/tags/")):
        raise SettingsError(
            "repository.verify.mode is tag, but no tag is followed: set repository.tag or "
            "repository.semver"
        )
    return made


def _author(told: Mapping[str, str]) -> AuthorSettings | None:
    if not told:
        return None
    return AuthorSettings(
        told["name"], told["email"], told.get("signingKeyFile") or "", told.get("format") or "ssh"
    )


def _jitter(said: int | str, interval: float) -> float:
    """In seconds; a number counts seconds, per cent are of the interval."""
    return float(said) if isinstance(said, int) else interval * float(said.removesuffix("%")) / 100
