"""Validated repository URLs: https, ssh, or a local path from the command line; never an option of
git, never with a password.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING
from urllib import parse as urls

from gitops_ds.core import errors

if TYPE_CHECKING:  # few addresses contain any
    from gitops_ds.source.git.credentials.credential_values import Password

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*")
_SCP = re.compile(r"(?:(?P<user>[^@/:]+)@)?(?P<host>[^@/:\[\]]+):(?!//)(?P<path>.+)", re.DOTALL)
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)(?:://|::)", re.DOTALL)


class Scheme(StrEnum):
    """The transport; the values are git's names."""

    HTTPS = "https"
    SSH = "ssh"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a repository.

    `url` is for git, `display` for messages; neither contains a password. `origin` is scheme and
    host (with a non-default port), to which credentials are bound; empty for a local path. `login`
    is the user information of the URL.
    """

    scheme: Scheme
    url: str
    display: str
    origin: str = ""
    login: Password | None = field(default=None, repr=False, compare=False)

    @property
    def slug(self) -> str:
        """A directory name for this repository's cache."""
        return hashlib.sha256(self.url.encode()).hexdigest()[:24]


def parse(text: str, *, allow_local: bool = False) -> Address:
    """Parses an address: https, ssh (also `git@host:path`), or with `allow_local` a path or file://
    URL.

    Raises UsageError for an invalid one, SourceDenied for a local one without `allow_local`. The
    scp form is parsed as git does: https://git-scm.com/docs/git-clone#_git_urls
    """
    if (
        not text
        or len(text) > 2000
        or text != text.strip()
        or any(ord(c) < 32 or c == "\x7f" or "\ud800" <= c <= "\udfff" for c in text)
    ):
        raise errors.UsageError(
            "the repository's URL is empty or too long, or has spaces around it or control "
            "characters in it"
        )
    if text.startswith("-"):
        raise errors.UsageError(f"a repository's URL can't begin with a dash: {scrub(text)}")
    if scheme := _SCHEME.match(text):
        return _with_scheme(text, scheme["scheme"].lower(), allow_local=allow_local)
    if scp := _SCP.fullmatch(text):
        user, host, path = scp["user"] or "", scp["host"], scp["path"]
        _check_ssh(text, user, host, path)
        origin = f"ssh://{host}"
        return Address(Scheme.SSH, text, text, origin)
    return _local(text, text, allow_local=allow_local)


def is_local(text: str) -> bool:
    """Whether the address is a directory of a machine."""
    try:
        return parse(text, allow_local=True).scheme is Scheme.FILE
    except errors.UsageError:
        return False


def same_place(one: str, other: str) -> bool:
    """Whether two addresses are of one repository: they are equal, or have the same host and path,
    over ssh or https, with or without `.git`.
    """
    if one == other:
        return True
    first, second = _place(one), _place(other)
    if first is None or second is None or first[1:] != second[1:]:
        return False
    # ssh and https have different ports
    return first[0] == second[0] or first[0][0] is not second[0][0]


def _place(text: str) -> tuple[tuple[Scheme, int | None], str, str] | None:
    """Scheme with port, host, and path; None for a directory, and for one below the home of a user
    of an ssh server: forges have the user `git`.
    """
    try:
        where = parse(text, allow_local=True)
    except errors.UsageError:
        return None
    if where.scheme is Scheme.FILE:
        return None
    if (scp := _SCP.fullmatch(where.url)) and not _SCHEME.match(where.url):
        if scp["user"] not in (None, "git") and not scp["path"].startswith("/"):
            return None
        host, port, path = scp["host"], None, scp["path"]
    else:
        parts = urls.urlsplit(where.url)
        host, port, path = parts.hostname or "", parts.port, parts.path
    default = 443 if where.scheme is Scheme.HTTPS else 22
    name = path.strip("/").removesuffix(".git")
    return (where.scheme, port or default), host.lower(), name


def _with_scheme(text: str, scheme: str, *, allow_local: bool) -> Address:
    shown = scrub(text)
    if scheme == "file" and text.lower().startswith("file://"):
        rest = urls.urlsplit(text)
        if rest.netloc not in {"", "localhost"}:
            raise errors.UsageError(
                f"a file:// URL has no host: write file:///path instead of {shown}"
            )
        return _local(urls.unquote(rest.path), shown, allow_local=allow_local)
    if scheme not in {"https", "ssh"}:
        raise errors.UsageError(
            f"{shown}: {scheme} is not supported; use https:// or ssh:// (git@host:path)"
        )
    try:
        parts = urls.urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise errors.UsageError(f"{shown} is not a URL: {error}") from None
    netloc = f"[{host}]" if ":" in host else host
    if not _HOST.fullmatch(netloc):
        raise errors.UsageError(f"{shown} has no valid host; write {scheme}://host/path")
    if parts.query or parts.fragment or len(parts.path) < 2:
        raise errors.UsageError(
            f"{shown} must be {scheme}://host/path, without a query or fragment"
        )
    where = netloc if port is None else f"{netloc}:{port}"
    if scheme == "ssh":
        user = urls.unquote(parts.username or "")
        if parts.password is not None:
            raise errors.UsageError(
                f"{shown}: a password in an ssh URL is not supported; use a private key"
            )
        _check_ssh(text, user, netloc, parts.path)
        url = f"ssh://{user}@{where}{parts.path}" if user else f"ssh://{where}{parts.path}"
        return Address(Scheme.SSH, url, url, f"ssh://{where}")
    login = None
    if parts.username is not None or parts.password is not None:
        # Many CI systems write a token as `https://TOKEN@host`.
        from gitops_ds.source.git.credentials.credential_values import Password

        user, password = urls.unquote(parts.username or ""), urls.unquote(parts.password or "")
        login = Password(password, user or "git") if password else Password(user)
    url = f"https://{where}{parts.path}"
    return Address(Scheme.HTTPS, url, url, f"https://{where}", login)


def _check_ssh(text: str, user: str, host: str, path: str) -> None:
    if (
        not _HOST.fullmatch(host)
        or (user and not _USER.fullmatch(user))
        or path.lstrip("/").startswith("-")
    ):
        raise errors.UsageError(
            f"{scrub(text)} is not an ssh address; write git@host:path or ssh://git@host/path"
        )


def _local(path: str, shown: str, *, allow_local: bool) -> Address:
    if not allow_local:
        raise errors.SourceDenied(
            f"{scrub(shown)} is a local path, which is allowed on the command line only; "
            "use an https:// or ssh:// URL, or set repository.allowLocal: true"
        )
    whole = Path(path).expanduser().resolve()
    return Address(Scheme.FILE, f"file://{whole}", str(whole))


def scrub(text: str) -> str:
    """The text without user information (between `//` and `@`) in URLs, so that no password is
    printed.
    """
    return re.sub(r"(//)[^/\s'\"]*@", r"\1", text)
