"""A receiver over HTTP: signed, without redirects, with an end to waiting, and no word about where
it is.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from gitops_ds.core.events.definition import Topic
from gitops_ds.core.events.notifications import Notification
from gitops_ds.notify.notifications import MessageFormat, NotificationBatch
from gitops_ds.service.notifications import sender
from gitops_ds.service.settings.service import ReceiverSettings
from tests import gitservers
from tests.http_servers import serving

LETTER = NotificationBatch(
    [Notification(Topic.COMMIT, 0.0, "new commit <!here> & more", "m", "fleet", "c" * 40)],
    3,
    "eu-1",
)
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def receiver(answer: Answer, context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{any:.*}", answer)
    async with serving(app, context, handler_cancellation=True) as url:
        yield f"{url}/services/T0/B0/the-secret-part"


def settings(
    directory: Path, url: str, secret: str | None = None, format: MessageFormat = MessageFormat.JSON
) -> ReceiverSettings:
    (directory / "url").write_text(url + "\n")
    if secret is not None:
        (directory / "secret").write_text(secret)
    return ReceiverSettings(
        "chat",
        str(directory / "url"),
        format,
        secret_file=str(directory / "secret") if secret is not None else "",
    )


async def posted(directory: Path, answer: Answer, seconds: float = 10.0) -> sender.DeliveryFailed:
    """Why it was not taken."""
    async with receiver(answer) as url:
        with pytest.raises(sender.DeliveryFailed) as error:
            await sender.post(settings(directory, url), LETTER, seconds)
    assert "the-secret-part" not in str(error.value)
    assert "127.0.0.1" not in str(error.value)
    return error.value


def test_a_program_gets_signed_json(tmp_path: Path) -> None:
    seen: list[tuple[bytes, str]] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append((await request.read(), request.headers["X-Signature"]))
        return web.Response(status=202)

    async def main() -> None:
        async with receiver(answer) as url:
            await sender.post(settings(tmp_path, url, "a secret\n"), LETTER)

    asyncio.run(main())
    ((body, signature),) = seen
    assert signature == "sha256=" + hmac.new(b"a secret", body, hashlib.sha256).hexdigest()
    document = json.loads(body)
    assert (document["kind"], document["cluster"], document["omitted"]) == (
        "News",
        "eu-1",
        3,
    )
    (item,) = document["items"]
    assert (item["topic"], item["message"], item["id"]) == (
        "commit",
        LETTER.items[0].message,
        LETTER.items[0].id,
    )


def test_the_text_for_a_chat_mentions_no_user(tmp_path: Path) -> None:
    seen: list[dict[str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        assert "X-Signature" not in request.headers
        seen.append(await request.json())
        return web.Response(text="ok")

    async def main() -> None:
        async with receiver(answer) as url:
            await sender.post(settings(tmp_path, url, format=MessageFormat.SLACK), LETTER)

    asyncio.run(main())
    assert seen == [{"text": "*commit* eu-1: new commit &lt;!here&gt; &amp; more\nand 3 more"}]


def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    paths: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        paths.append(request.path)
        raise web.HTTPTemporaryRedirect("/elsewhere")

    error = asyncio.run(posted(tmp_path, answer))
    assert "HTTP 307: redirects are not followed" in str(error)
    assert len(paths) == 1


def test_a_certificate_of_an_unknown_authority_is_not_accepted(tmp_path: Path) -> None:
    context = gitservers.tls_context()

    async def answer(request: web.Request) -> web.Response:
        raise AssertionError

    async def main() -> None:
        async with receiver(answer, context) as url:
            await sender.post(settings(tmp_path, url), LETTER)

    with pytest.raises(sender.DeliveryFailed, match="its certificate is not trusted"):
        asyncio.run(main())


def test_a_delivery_to_a_hanging_receiver_times_out(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(3600)
        raise AssertionError

    assert str(asyncio.run(posted(tmp_path, answer, 0.2))) == "no response in time"


@pytest.mark.parametrize(
    ("status", "headers", "wait"),
    [(429, {"Retry-After": "77"}, 77.0), (503, {"Retry-After": "9"}, 9.0), (404, {}, 0.0)],
)
def test_retry_after_is_respected(
    tmp_path: Path, status: int, headers: dict[str, str], wait: float
) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status, headers=headers, text="a secret word of the receiver")

    error = asyncio.run(posted(tmp_path, answer))
    assert (str(error), error.wait) == (f"HTTP {status}", wait)


@pytest.mark.parametrize(
    ("url", "secret", "message"),
    [
        ("ftp://host/x", None, "must contain an address"),
        ("https://[host/x", None, "must contain an address"),
        ("http://ho st/the-secret-part", None, "unreachable|must contain an address"),
        ("http://127.0.0.1:1/the-secret-part", None, "unreachable"),
        ("http://127.0.0.1:1/the-secret-part", " \n", "unsigned notifications are not sent"),
    ],
)
def test_an_invalid_address_is_reported_without_the_address(
    tmp_path: Path, url: str, secret: str | None, message: str
) -> None:
    with pytest.raises(sender.DeliveryFailed, match=message) as error:
        asyncio.run(sender.post(settings(tmp_path, url, secret), LETTER))
    assert "the-secret-part" not in str(error.value)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(sender.DeliveryFailed, match="No such file"):
        asyncio.run(sender.post(ReceiverSettings("chat", str(tmp_path / "none")), LETTER))
