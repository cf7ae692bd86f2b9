"""Credentials of a GitHub App: an installation token for one repository, valid for an hour, renewed
before it ends.

https://docs.github.com/en/apps/creating-github-apps/authenticating-with-a-github-app/generating-an-installation-access-token-for-a-github-app
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import orjson

from gitops_ds.core import errors
from gitops_ds.source.git.address import Address, Scheme
from gitops_ds.source.git.credentials.credential_values import Credentials, Password

USER = "x-access-token"
# seconds before its expiry in which a token is replaced: longer than any connection to the server
EARLY = 600.0
_SECONDS = 30.0
_JWT_SECONDS = 540  # GitHub accepts ten minutes, by its own clock
_SKEW = 60  # seconds that our clock may be ahead, as GitHub recommends
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class App:
    """An app's id (or client id), the number of its installation, its private key in PEM; `api` is
    empty for the default API.
    """

    id: str
    installation: str
    private_key: bytes = field(repr=False)
    api: str = ""


@dataclass(frozen=True, slots=True)
class Token:
    """An installation's token, and its expiry (seconds since 1970)."""

    text: str = field(repr=False)
    ends: float


def api_of(where: Address) -> str:
    """The API for a repository. Raises UsageError for an address without https.

    github.com, tenants on ghe.com, and GitHub Enterprise Server have different addresses:
    https://docs.github.com/en/enterprise-server/rest/using-the-rest-api/getting-started-with-the-rest-api
    """
    if where.scheme is not Scheme.HTTPS:
        raise errors.UsageError(
            f"{where.display}: a GitHub App requires https: write https://HOST/OWNER/NAME"
        )
    host = urlsplit(where.url).netloc.lower()
    if host == "github.com" or host.endswith(".ghe.com"):
        return f"https://api.{host}"
    return f"https://{host}/api/v3"


def assertion(app: App, now: float) -> str:
    """The JWT that authenticates the app, signed with its key. Raises UsageError for an invalid
    private key.
    """
    import jwt  # 8 MiB, for apps only

    claims = {"iat": int(now) - _SKEW, "exp": int(now) - _SKEW + _JWT_SECONDS, "iss": app.id}
    try:
        return jwt.encode(claims, app.private_key, algorithm="RS256")
    except (ValueError, TypeError, jwt.PyJWTError):
        raise errors.UsageError(
            f"the private key of GitHub App {app.id} can't be read: give the PEM file that GitHub "
            "made for it"
        ) from None


class Tokens:
    """The token of one app for one repository, cached until shortly before its expiry."""

    def __init__(self, where: Address, clock: Callable[[], float]) -> None:
        """Nothing is sent yet. `clock` gives seconds since 1970."""
        self._where, self._clock = where, clock
        self._held: tuple[App, Token] | None = None
        self._one_at_a_time = asyncio.Lock()

    async def login(self, app: App, own: Credentials, *, refused: bool) -> Password:
        """The current credentials; `own` has the authorities and the proxy for the API.

        A refused token is replaced. Raises SourceDenied, SourceUnreachable, UsageError.
        """
        async with self._one_at_a_time:
            if (
                refused
                or self._held is None
                or self._held[0] != app
                or self._held[1].ends - self._clock() < EARLY
            ):
                self._held = (app, await self._ask(app, own))
            return Password(self._held[1].text, USER)

    async def _ask(self, app: App, own: Credentials) -> Token:
        if not re.fullmatch(r"[A-Za-z0-9._-]+", app.id) or not re.fullmatch(
            r"[0-9]+", app.installation
        ):
            raise errors.UsageError(
                "the id of a GitHub App must be a word, and that of its installation a number"
            )
        api = (app.api or api_of(self._where)).rstrip("/")
        if urlsplit(api).scheme != "https" or "@" in api:
            raise errors.UsageError(
                "repository.credentials.githubApp.apiURL must be https://HOST/PATH, not "
                f"{urlsplit(api).scheme}://…"
            )
        name = urlsplit(self._where.url).path.rstrip("/").rpartition("/")[2].removesuffix(".git")
        subject = f"GitHub App {app.id} at {api}"
        url = f"{api}/app/installations/{app.installation}/access_tokens"
        status, body = await _post(url, assertion(app, self._clock()), name, own, subject)
        if status != 201:
            raise _refused(status, body, subject, app)
        try:
            return _token(body)
        except (ArithmeticError, LookupError, TypeError, ValueError):
            raise errors.SourceUnreachable(f"{subject}: invalid answer; check apiURL") from None


def _token(body: Any) -> Token:
    """The token in an answer. Raises ValueError, TypeError, LookupError, ArithmeticError."""
    text = body["token"]
    if not (isinstance(text, str) and text.isascii() and text.isprintable() and text.strip()):
        raise ValueError(text)
    return Token(text, datetime.fromisoformat(body["expires_at"]).timestamp())


def _trust(own: Credentials, subject: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(
            cadata=own.authorities.decode() if own.authorities else None
        )
    except (ssl.SSLError, ValueError):
        raise errors.SourceDenied(
            f"{subject}: the authority's certificate can't be read; provide it in PEM format"
        ) from None


async def _post(
    url: str, bearer: str, repository: str, own: Credentials, subject: str
) -> tuple[int, Any]:
    from gitops_ds.core import http_library

    headers = {
        "Authorization": f"Bearer {bearer}",
        "Accept": "application/vnd.github+json",
        "X-GitHub-Api-Version": "2022-11-28",
    }
    # The token is only for this repository, even if the app has access to others.
    body = json.dumps({"repositories": [repository]}).encode()
    request = http_library.HttpRequest(
        "POST", url, _SECONDS, headers, body, _trust(own, subject), own.proxy, _MOST_BYTES
    )
    try:
        response = await http_library.send(request)
    except http_library.NoResponse as error:
        raise errors.SourceUnreachable(
            f"{subject}: connection failed ({error}); check the network, then try again"
        ) from None
    try:
        return response.status, orjson.loads(response.body)  # json fails at deep nesting
    except ValueError:
        return response.status, None


def _refused(status: int, body: Any, subject: str, app: App) -> errors.SourceError:
    message = body.get("message") if isinstance(body, dict) else None
    detail = f": {message[:200]}" if isinstance(message, str) and message.isprintable() else ""
    if status == 429 or status >= 500 or (status == 403 and "rate limit" in detail.lower()):
        return errors.SourceUnreachable(
            f"{subject} can't create a token now ({status}{detail}); try again"
        )
    advice = {
        401: "the key, the app's id or the local clock is wrong",
        403: "the installation is suspended, or the app lacks the permission",
        404: f"installation {app.installation} not found",
        422: "the installation has no access to this repository",
    }.get(status, "not an answer of GitHub's API: check apiURL")
    return errors.SourceDenied(f"{subject} got no token ({status}{detail}): {advice}")
