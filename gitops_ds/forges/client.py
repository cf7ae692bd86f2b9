"""A forge over HTTP: a comment that is written again and again, and the status of a commit.

What passes (no connection, 5xx, too many requests) is tried again until the time is over. A comment
whose writing may have gone through is looked for first, so that there is never a second one. The
token goes to one host only.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, Final, TypeVar
from urllib.parse import urljoin, urlsplit

import aiohttp
import orjson
import yarl

from gitops_ds import errors
from gitops_ds.forges import error_messages, requests, retries, sticky_comment
from gitops_ds.forges.access import ForgeAccess
from gitops_ds.forges.requests import (
    Comment,
    CommitStatus,
    Doing,
    ForgeRequest,
    Opening,
    PullRequestRef,
)
from gitops_ds.forges.sticky_comment import Sticky

T = TypeVar("T")
_REQUEST_SECONDS: Final = 30.0
_MOST_PAGES: Final = 100
_MOST_REDIRECTS: Final = 3
_LONGEST_WORDS: Final = 200


class Posted(StrEnum):
    """What became of a comment."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    NEWER = "newer"  # a later run for the same commit wrote it


@dataclass(frozen=True, slots=True)
class Clock:
    """Time for one client: seconds since the epoch, and a pause."""

    now: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


@dataclass(frozen=True, slots=True)
class _ForgeReply:
    status: int
    headers: Mapping[str, str]
    body: bytes


class _Passing(Exception):
    """A failure that may pass in `wait` seconds."""

    def __init__(self, told: str, wait: float) -> None:
        super().__init__(told)
        self.wait = wait


class Forge:
    """One repository on a forge. Use it as an async context manager; `patience` bounds all that is
    done with it, in seconds.
    """

    def __init__(
        self,
        access: ForgeAccess,
        patience: float,
        user_agent: str = "gitops-ds",
        clock: Clock | None = None,
    ) -> None:
        """Nothing is sent yet."""
        self._access, self._user_agent, self._clock = access, user_agent, clock or Clock()
        self._dialect = requests.dialect(access.kind)
        self._ends = self._clock.now() + patience
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Forge:
        """Opens the connections."""
        self._session = aiohttp.ClientSession(
            headers={"User-Agent": self._user_agent}, cookie_jar=aiohttp.DummyCookieJar()
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes them."""
        if self._session:
            await self._session.close()

    async def head(self, number: int) -> str:
        """The commit that a pull request is at now. Raises ForgeDenied where there is no such pull
        request.
        """
        return await self._asked(self._dialect.pull(self._place(number)), self._dialect.head)

    async def find(self, branch: str, sha: str) -> int:
        """The number of the open pull request from `OWNER:BRANCH` that is at that commit; 0 where
        there is none.
        """
        request = self._dialect.open_from(self._place(), branch)
        if request is None:
            return 0
        found = await self._asked(
            request, lambda reply: [(int(one["number"]), self._dialect.head(one)) for one in reply]
        )
        return next((number for number, head in found if head == sha), 0)

    async def comment(self, number: int, wanted: Sticky) -> Posted:
        """Writes the comment under a pull request: over our own with the same marker, else a new
        one.
        """
        place = self._place(number)
        me = await self._asked(self._dialect.whoami(), self._dialect.me)
        done = Posted.UNCHANGED
        for attempt in itertools.count():
            there = await self._own(place, me, wanted)
            if there and sticky_comment.same(there, wanted):
                return done
            if there and sticky_comment.newer(there, wanted):
                return Posted.NEWER
            done = Posted.UPDATED if there else Posted.CREATED
            try:
                request = (
                    self._dialect.update(place, there.id, wanted.body)
                    if there
                    else self._dialect.create(place, wanted.body)
                )
                await self._once(request, attempt)
                return done
            except _Passing as passing:  # it may have gone through all the same: look again
                await self._pause(passing)
        raise AssertionError

    async def status(self, sha: str, status: CommitStatus) -> None:
        """Sets the status of a commit."""
        await self._asked(self._dialect.status(self._place(), sha, status), lambda reply: reply)

    async def open(self, opening: Opening) -> str:
        """Opens a pull request; where it is shown. There is one for a branch: a second try is
        refused there.
        """
        return await self._asked(self._dialect.open(self._place(), opening), self._dialect.opened)

    async def _own(self, place: PullRequestRef, me: str, wanted: Sticky) -> Comment | None:
        """Our comment, looked for through all pages."""
        for page in range(1, _MOST_PAGES + 1):
            reply = await self._sent(self._dialect.comments(place, page))
            items = self._read(reply, lambda found: [self._dialect.comment(item) for item in found])
            if found := sticky_comment.own(items, me, wanted):
                return found
            if 'rel="next"' not in reply.headers.get("Link", ""):
                return None
        raise errors.ForgeError(
            f"{self._dialect.name} has more than {_MOST_PAGES} pages of comments there"
        )

    def _place(self, number: int = 0) -> PullRequestRef:
        return PullRequestRef(self._access.project, number)

    async def _asked(self, request: ForgeRequest, read: Callable[[Any], T]) -> T:
        return self._read(await self._sent(request), read)

    def _read(self, reply: _ForgeReply, read: Callable[[Any], T]) -> T:
        try:
            return read(orjson.loads(reply.body))
        except (ValueError, LookupError, TypeError, AttributeError):
            raise errors.ForgeError(
                f"{self._access.url} does not answer as {self._dialect.name} does: are --forge "
                "and --url right?"
            ) from None

    async def _sent(self, request: ForgeRequest) -> _ForgeReply:
        """The answer to a request that may be sent again."""
        for attempt in itertools.count():
            try:
                return await self._once(request, attempt)
            except _Passing as passing:
                await self._pause(passing)
        raise AssertionError

    async def _pause(self, passing: _Passing) -> None:
        if self._clock.now() + passing.wait >= self._ends:
            asked = (
                f"; it would take {passing.wait:.0f} s more"
                if passing.wait > retries.LONGEST_BACK_OFF
                else ""
            )
            raise errors.ForgeUnreachable(
                f"{passing}{asked}: the time of --timeout is over, try again later"
            )
        await self._clock.sleep(passing.wait)

    async def _once(self, request: ForgeRequest, attempt: int) -> _ForgeReply:
        """The answer. Raises _Passing for what may pass, a ForgeError for what won't."""
        reply = await self._followed(request, attempt)
        if reply.status < 300:
            return reply
        words = self._words(reply)
        if (
            request.doing is Doing.MARK
            and reply.status == 400
            and "cannot transition status" in words.lower()
        ):
            return reply  # GitLab's way to say that it has this status already
        wait = retries.wait(reply.status, reply.headers, words, attempt, self._clock.now())
        if wait is not None:
            raise _Passing(
                f"{self._dialect.name} can't {request.doing.value} now "
                f"({f'{reply.status} {words}'.strip()})",
                wait,
            )
        raise error_messages.error(
            self._dialect, request.doing, reply.status, words, self._access.token
        )

    async def _followed(self, request: ForgeRequest, attempt: int) -> _ForgeReply:
        """The answer behind redirects (a repository that was renamed), as long as they stay on the
        host.
        """
        url = requests.address(self._access.url, request.path)
        reply = await self._exchanged(request, url, attempt)
        for _ in range(_MOST_REDIRECTS):
            # Of the others a client makes a GET, which would write nothing:
            # https://www.rfc-editor.org/rfc/rfc9110#status.3xx
            if reply.status not in (
                (301, 302, 307, 308) if request.method == "GET" else (307, 308)
            ):
                break
            url = urljoin(url, reply.headers.get("Location", ""))
            if urlsplit(url)[:2] != urlsplit(self._access.url)[:2]:
                raise errors.ForgeError(
                    f"{self._access.url} leads to another server, {_host(url)}: name that one, if "
                    "it is right"
                )
            reply = await self._exchanged(request, url, attempt)
        if 300 <= reply.status < 400:
            raise errors.ForgeError(
                f"{self._access.url} answers with a redirect ({reply.status}): is --url right?"
            )
        return reply

    async def _exchanged(self, request: ForgeRequest, url: str, attempt: int) -> _ForgeReply:
        if self._session is None:
            raise errors.ForgeError("the connection is not open")
        token = self._access.token
        headers = {
            **self._dialect.headers(token.value, of_job=token.of_job),
            "Content-Type": "application/json",
        }
        seconds = min(_REQUEST_SECONDS, max(self._ends - self._clock.now(), 1.0))
        try:
            async with self._session.request(
                request.method,
                yarl.URL(url, encoded=True),
                data=None if request.body is None else orjson.dumps(request.body),
                headers=headers,
                proxy=proxy(url),
                timeout=aiohttp.ClientTimeout(total=seconds),
                allow_redirects=False,
            ) as reply:
                return _ForgeReply(reply.status, reply.headers, await reply.read())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            why = (
                "no answer in time"
                if isinstance(error, TimeoutError)
                else " ".join(str(error).split()) or type(error).__name__
            )
            told = f"{self._access.url} can't be reached: {why}"
            raise _Passing(told, retries.back_off(attempt)) from error

    def _words(self, reply: _ForgeReply) -> str:
        """What the forge says, as one harmless line without the token."""
        try:
            told = orjson.loads(reply.body)
            said = told.get("message") or told.get("error") if isinstance(told, dict) else ""
        except orjson.JSONDecodeError:
            said = ""
        text = " ".join("".join(c if c.isprintable() else " " for c in str(said or "")).split())
        return text.replace(self._access.token.value, "<token>")[:_LONGEST_WORDS]


def _host(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def proxy(url: str) -> str | None:
    """The proxy that the environment names for it; aiohttp's own way would also take a password
    from ~/.netrc.
    """
    parts = urlsplit(url)
    if urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    return urllib.request.getproxies().get(parts.scheme)
