"""The HTTP client of a forge: one sticky comment per pull request, commit statuses, pull requests.

Temporary failures (no connection, 5xx, rate limits) are retried until the deadline. A comment whose
write may have succeeded is searched first, to avoid duplicates. The token is sent to one host only.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from types import TracebackType
from typing import Any, Final, TypeVar
from urllib.parse import urljoin

import msgspec
import orjson
import yarl

from gitops_ds.core import errors
from gitops_ds.core.http_library import NoResponse, aiohttp, proxy, read_body, system_trust
from gitops_ds.core.values import replace
from gitops_ds.forges import forge_access, retries, sticky_comment
from gitops_ds.forges.contract import (
    Comment,
    CommitStatus,
    ForgeApi,
    ForgeRequest,
    NewPullRequest,
    PullRequestRef,
    RequestPurpose,
)
from gitops_ds.forges.forge_access import ForgeAccess, ForgeToken
from gitops_ds.forges.sticky_comment import Sticky

T = TypeVar("T")
_REQUEST_SECONDS: Final = 30.0
_MAX_PAGES: Final = 100
_MAX_REDIRECTS: Final = 3
_LONGEST_MESSAGE: Final = 200
_MOST_BYTES: Final = 32 << 20  # of an answer: a page of 100 comments of 65,536 characters fits
_MAY_BE_MISSING: Final = (RequestPurpose.LIST_REVIEWS, RequestPurpose.GET_MEMBER)


class CommentChange(StrEnum):
    """The effect of writing a comment."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    NEWER = "newer"  # written by a later run for the same commit


class Clock(msgspec.Struct, frozen=True):
    """The time of one client: seconds since the epoch, and a sleep."""

    now: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


class _ForgeReply(msgspec.Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    body: bytes


class _RetryableError(Exception):
    """A temporary failure; the request may be sent again after `wait` seconds."""

    def __init__(self, message: str, wait: float) -> None:
        super().__init__(message)
        self.wait = wait


class Forge:
    """One repository on a forge, an async context manager. `patience` is the time for everything
    done with it, in seconds.
    """

    def __init__(
        self,
        access: ForgeAccess,
        patience: float,
        user_agent: str = "gitops-ds",
        clock: Clock | None = None,
    ) -> None:
        """Sends nothing."""
        self._access, self._user_agent, self._clock = access, user_agent, clock or Clock()
        self._api = forge_access.api(access.kind)
        self._deadline = self._clock.now() + patience
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Forge:
        """Opens the HTTP session."""
        # Compressed, a small answer could take any memory.
        self._session = aiohttp.ClientSession(
            headers={"User-Agent": self._user_agent, "Accept-Encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes the HTTP session."""
        if self._session:
            await self._session.close()

    async def head(self, number: int) -> str:
        """The current head commit of a pull request. Raises ForgeDenied if it does not exist."""
        return await self.request(
            self._api.get_pull_request(self._ref(number)), self._api.read_head
        )

    async def find(self, branch: str, sha: str) -> int:
        """The number of the open pull request from `OWNER:BRANCH` with that head commit, or 0."""
        request = self._api.list_open_pull_requests(self._ref(), branch)
        if request is None:
            return 0
        heads = await self.request(
            request,
            lambda reply: [(int(item["number"]), self._api.read_head(item)) for item in reply],
        )
        return next((number for number, head in heads if head == sha), 0)

    async def comment(self, number: int, sticky: Sticky) -> CommentChange:
        """Updates our comment with the same marker on a pull request, or creates it."""
        ref = self._ref(number)
        user = await self.request(self._api.get_user(), self._api.read_user)
        result = CommentChange.UNCHANGED
        for attempt in itertools.count():
            comment = await self._own_comment(ref, user, sticky)
            if comment and sticky_comment.is_same(comment, sticky):
                return result
            if comment and sticky_comment.is_newer(comment, sticky):
                return CommentChange.NEWER
            result = CommentChange.UPDATED if comment else CommentChange.CREATED
            try:
                request = (
                    self._api.update_comment(ref, comment.id, sticky.body)
                    if comment
                    else self._api.create_comment(ref, sticky.body)
                )
                await self._send_once(request, attempt)
                return result
            except _RetryableError as failure:  # the write may have succeeded: list again first
                await self._sleep_before_retry(failure)
        raise AssertionError

    async def status(self, sha: str, status: CommitStatus) -> None:
        """Sets a status of a commit."""
        await self.request(self._api.set_status(self._ref(), sha, status), lambda reply: reply)

    async def open(self, new: NewPullRequest) -> str:
        """Opens a pull request and returns its web page. A second one for a branch is refused by
        the forge.
        """
        return await self.request(self._api.open_pull_request(self._ref(), new), self._api.read_url)

    async def _own_comment(self, ref: PullRequestRef, user: str, sticky: Sticky) -> Comment | None:
        """Our comment, searched on all pages."""
        for page in range(1, _MAX_PAGES + 1):
            reply = await self._send(self._api.list_comments(ref, page))
            comments = self._read(
                reply, lambda items: [self._api.read_comment(item) for item in items]
            )
            if comment := sticky_comment.find_own(comments, user, sticky):
                return comment
            if 'rel="next"' not in reply.headers.get("Link", ""):
                return None
        raise errors.ForgeError(f"{self._api.name} has more than {_MAX_PAGES} pages of comments")

    def _ref(self, number: int = 0) -> PullRequestRef:
        return PullRequestRef(self._access.project, number)

    async def request(self, request: ForgeRequest, read: Callable[[Any], T]) -> T:
        """What an answer contains; a missing review or member is read as None."""
        return self._read(await self._send(request), read)

    def _read(self, reply: _ForgeReply, read: Callable[[Any], T]) -> T:
        try:
            return read(orjson.loads(reply.body))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            raise errors.ForgeError(
                f"the answer of {self._access.url} is not one of {self._api.name}: check --forge "
                "and --url"
            ) from None

    async def _send(self, request: ForgeRequest) -> _ForgeReply:
        """The answer to a request that may be repeated."""
        for attempt in itertools.count():
            try:
                return await self._send_once(request, attempt)
            except _RetryableError as failure:
                await self._sleep_before_retry(failure)
        raise AssertionError

    async def _sleep_before_retry(self, failure: _RetryableError) -> None:
        if self._clock.now() + failure.wait >= self._deadline:
            wait = (
                f"; retry possible in {failure.wait:.0f} s"
                if failure.wait > retries.BACKOFF.longest
                else ""
            )
            raise errors.ForgeUnreachable(f"{failure}{wait}: --timeout exceeded, try again later")
        await self._clock.sleep(failure.wait)

    async def _send_once(self, request: ForgeRequest, attempt: int) -> _ForgeReply:
        """The answer. Raises _RetryableError for a temporary failure, ForgeError for others."""
        reply = await self._follow_redirects(request, attempt)
        if reply.status < 300:
            return reply
        if reply.status == 404 and request.purpose in _MAY_BE_MISSING:
            return replace(reply, body=b"null")
        message = self._message(reply)
        if (
            request.purpose is RequestPurpose.SET_STATUS
            and reply.status == 400
            and "cannot transition status" in message.lower()
        ):
            return reply  # GitLab's answer if the commit has this status already
        wait = retries.wait(reply.status, reply.headers, message, attempt, self._clock.now())
        if wait is not None:
            raise _RetryableError(
                f"{self._api.name} could not {request.purpose.value} "
                f"({f'{reply.status} {message}'.strip()})",
                wait,
            )
        raise _refusal(self._api, request.purpose, reply.status, message, self._access.token)

    async def _follow_redirects(self, request: ForgeRequest, attempt: int) -> _ForgeReply:
        """The answer after redirects (of a renamed repository) within the same host."""
        url = forge_access.request_url(self._access.url, request.path)
        reply = await self._exchange(request, url, attempt)
        for _ in range(_MAX_REDIRECTS):
            # A client repeats the others as GET, which would write nothing:
            # https://www.rfc-editor.org/rfc/rfc9110#status.3xx
            if reply.status not in (
                (301, 302, 307, 308) if request.method == "GET" else (307, 308)
            ):
                break
            url = self._target(url, reply.headers.get("Location", ""))
            reply = await self._exchange(request, url, attempt)
        if 300 <= reply.status < 400:
            raise errors.ForgeError(
                f"{self._access.url} answers with a redirect ({reply.status}): check --url"
            )
        return reply

    @property
    def _server(self) -> tuple[str, str | None, int | None, None]:
        """Scheme, host and port of the API, without a user."""
        own = yarl.URL(self._access.url, encoded=True)
        return own.scheme, own.host, own.port, None

    def _target(self, url: str, location: str) -> str:
        """The target of a redirect. Raises ForgeError for one on another server, or none at all."""
        try:
            target = yarl.URL(urljoin(url, location), encoded=True)
            # A login in the address would be sent in place of the token, or beside it.
            same = (target.scheme, target.host, target.port, target.raw_user) == self._server
            shown = self._printable(str(target.origin()))
        except ValueError:
            raise errors.ForgeError(
                f"{self._access.url} redirects to an invalid address: check --url"
            ) from None
        if not same:
            raise errors.ForgeError(
                f"{self._access.url} redirects to another server, {shown}: set --url to that one "
                "if it is right"
            )
        return str(target)

    async def _exchange(self, request: ForgeRequest, url: str, attempt: int) -> _ForgeReply:
        if self._session is None:
            raise errors.ForgeError("the connection is not open")
        token = self._access.token
        headers = {
            **self._api.headers(token.value, of_job=token.of_job),
            "Content-Type": "application/json",
        }
        seconds = min(_REQUEST_SECONDS, max(self._deadline - self._clock.now(), 1.0))
        try:
            async with self._session.request(
                request.method,
                yarl.URL(url, encoded=True),
                data=None if request.body is None else orjson.dumps(request.body),
                headers=headers,
                proxy=proxy(url),
                ssl=system_trust(),
                timeout=aiohttp.ClientTimeout(total=seconds),
                allow_redirects=False,
            ) as reply:
                return _ForgeReply(reply.status, reply.headers, await read_body(reply, _MOST_BYTES))
        except NoResponse as error:
            raise errors.ForgeError(f"{self._access.url}: {error}: check --url") from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = (
                "timed out"
                if isinstance(error, TimeoutError)
                else " ".join(str(error).split()) or type(error).__name__
            )
            raise _RetryableError(
                f"{self._access.url} can't be reached: {reason}", retries.BACKOFF.delay(attempt + 1)
            ) from error

    def _message(self, reply: _ForgeReply) -> str:
        """The forge's message as one printable line, with the token redacted."""
        try:
            body = orjson.loads(reply.body)
            message = body.get("message") or body.get("error") if isinstance(body, dict) else ""
        except orjson.JSONDecodeError:
            message = ""
        return self._printable(str(message or ""))

    def _printable(self, text: str) -> str:
        line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return line.replace(self._access.token.value, "<token>")[:_LONGEST_MESSAGE]


def _refusal(
    api: ForgeApi, purpose: RequestPurpose, status: int, message: str, token: ForgeToken
) -> errors.ForgeError:
    """The error for a failure that a retry can't resolve. A forge also answers 404 for objects that
    the token may not read.
    """
    answer = f"{status} {message}".strip()
    if status == 401:
        return errors.ForgeDenied(
            f"{api.name} did not accept the token of {token.name} ({answer}): it may have expired"
        )
    permission = api.required_permission(purpose, of_job=token.of_job)
    if status == 404 and purpose is RequestPurpose.GET_PULL_REQUEST:
        return errors.ForgeDenied(
            f"{api.pull_request} not found on {api.name}, or the token of {token.name} may not "
            f"read it ({answer}): it needs {permission}"
        )
    if status in (403, 404):
        return errors.ForgeDenied(
            f"{api.name} refused to {purpose.value} ({answer}): the token of {token.name} needs "
            f"{permission}"
        )
    return errors.ForgeError(f"{api.name} refused to {purpose.value} ({answer})")
