"""Delivery of notifications to one receiver: in batches, with a rate limit, and retried until they
are accepted or too old.

The address of a receiver is a secret (a chat accepts messages from every holder), so messages
contain only its name.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import msgspec

from gitops_ds.core import errors, http_library
from gitops_ds.core.events.base import Emit
from gitops_ds.core.events.notifications import NotificationFailed, NotificationSent
from gitops_ds.core.http_library import HttpRequest, HttpResponse, NoResponse
from gitops_ds.core.rate_limits import Backoff
from gitops_ds.forges import retries
from gitops_ds.notify import notifications
from gitops_ds.notify.notifications import NotificationBatch
from gitops_ds.service.notifications.outbox import GIVE_UP, Outbox, ReceiverQueue
from gitops_ds.service.settings import base
from gitops_ds.service.settings.service import ReceiverSettings

GATHER = 1.0  # seconds: events of one cause are close together
SECONDS = 10.0  # for one request
BACKOFF = Backoff(5.0, 600.0, jitter=0.1)
LONGEST_ASKED = 3600.0  # seconds, the maximum of Retry-After


class DeliveryFailed(Exception):
    """A failed delivery; `wait` is the minimum delay of the next attempt in seconds."""

    def __init__(self, message: str, wait: float = 0.0) -> None:
        super().__init__(message)
        self.wait = wait


Post = Callable[[ReceiverSettings, NotificationBatch], Awaitable[None]]


def target(settings: ReceiverSettings) -> tuple[str, bytes]:
    """The address of the receiver, and the secret for signatures (empty for none), read from files.

    Raises DeliveryFailed.
    """
    try:
        url = base.read_file(f"notify.{settings.name}.urlFile", settings.url_file).decode().strip()
        secret = b""
        if settings.secret_file:
            secret = base.read_file(
                f"notify.{settings.name}.secretFile", settings.secret_file
            ).strip()
    except errors.SettingsError as error:
        raise DeliveryFailed(str(error)) from None
    except UnicodeDecodeError:
        raise DeliveryFailed(f"{settings.url_file} is not UTF-8 text") from None
    if not _is_address(url):
        raise DeliveryFailed(
            f"{settings.url_file} must contain an address: https://HOST/… or http://HOST/…"
        )
    if settings.secret_file and not secret:
        raise DeliveryFailed(
            f"{settings.secret_file} is empty; unsigned notifications are not sent"
        )
    return url, secret


async def post(
    settings: ReceiverSettings, batch: NotificationBatch, seconds: float = SECONDS
) -> None:
    """Sends it. Raises DeliveryFailed, also for files that can't be read."""
    url, secret = target(settings)
    body = notifications.body(settings.format, batch)
    headers = {"Content-Type": "application/json"}
    headers |= {"X-Signature": notifications.signature(secret, body)} if secret else {}
    try:
        _check(await http_library.send(HttpRequest("POST", url, seconds, headers, body)))
    except NoResponse as error:
        raise DeliveryFailed(str(error)) from None


def _is_address(url: str) -> bool:
    with contextlib.suppress(ValueError):
        return (
            urlsplit(url).scheme in ("http", "https")
            and bool(urlsplit(url).hostname)
            and url.isprintable()
        )
    return False


def _check(reply: HttpResponse) -> None:
    """Raises DeliveryFailed unless the receiver accepted it."""
    if reply.status < 300:
        return
    if reply.status < 400:
        raise DeliveryFailed(
            f"HTTP {reply.status}: redirects are not followed, set the new address"
        )
    raise DeliveryFailed(
        f"HTTP {reply.status}",
        retries.wait(reply.status, reply.headers, "", 0, time.time()) or 0.0,
    )


class SenderContext(msgspec.Struct, frozen=True):
    """The context of all receivers: the cluster's name, the emitter of events, and the time in
    seconds since 1970.
    """

    cluster: str
    emit: Emit
    clock: Callable[[], float] = time.time
    chance: Callable[[], float] = random.random
    post: Post = post


class Sender:
    """Sends notifications to one receiver while `run` runs."""

    def __init__(self, settings: ReceiverSettings, context: SenderContext) -> None:
        self.settings, self._context = settings, context
        self._queued = asyncio.Event()
        self._last_failure, self._failures = "", 0

    def wake(self) -> None:
        """Announces new notifications."""
        self._queued.set()

    async def run(self, outbox: Outbox, changed: Callable[[], None]) -> None:
        """Sends until it is cancelled; `changed` is called after each change of the queue."""
        waiting = outbox.waiting.setdefault(self.settings.name, ReceiverQueue())
        loop = asyncio.get_running_loop()
        gap = 60.0 / self.settings.per_minute
        whole = loop.time()  # when the full rate limit is available again
        while True:
            while not waiting.items:
                await self._queued.wait()
                self._queued.clear()
            await asyncio.sleep(max(GATHER, whole - (60.0 - gap) - loop.time()))
            whole = max(whole, loop.time()) + gap
            await asyncio.sleep(await self._send(waiting, changed))

    async def _send(self, waiting: ReceiverQueue, changed: Callable[[], None]) -> float:
        """One attempt; the seconds until the next one after a failure."""
        context, name = self._context, self.settings.name
        if lost := waiting.forget(context.clock() - GIVE_UP):
            context.emit(NotificationFailed(context.clock(), name, "too old", lost))
            changed()
        if not waiting.items:
            return 0.0
        batch, queued, omitted = (
            waiting.batch(context.cluster),
            list(waiting.items),
            waiting.omitted,
        )
        try:
            await context.post(self.settings, batch)
        except DeliveryFailed as error:
            if str(error) != self._last_failure:
                context.emit(NotificationFailed(context.clock(), name, str(error)))
            self._last_failure = str(error)
            self._failures += 1
            wait = BACKOFF.delay(self._failures, context.chance())
            return max(wait, min(error.wait, LONGEST_ASKED))
        self._last_failure, self._failures = "", 0
        waiting.sent(queued, omitted)
        context.emit(NotificationSent(context.clock(), name, len(batch.items)))
        changed()
        return 0.0
