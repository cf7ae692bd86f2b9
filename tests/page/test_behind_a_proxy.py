"""The page behind a proxy that signs users in, with the documented settings and arguments."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from ruamel.yaml import YAML

from gitops_ds.service.settings.base import decode
from gitops_ds.service.settings.listen import PageSettings
from gitops_ds.service.web.page import access, routes
from gitops_ds.service.web.page.access import AccessKind, PageGuard
from tests.docs import pages
from tests.http_servers import serving
from tests.page import fleets

PAGE = pages.ROOT / "docs" / "page.md"
USER = {"X-Forwarded-User": "dana@example.com"}


def documented(file: str) -> Any:
    """The document of a YAML block of the page."""
    blocks = [block for section in pages.sections(PAGE) for block in section.blocks]
    text = next(block.text for block in blocks if block.file == file)
    return YAML(typ="safe", pure=True).load(text)


def documented_guard() -> PageGuard:
    settings = decode(PageSettings, documented("settings-oidc.yaml")["listen"]["page"])
    assert settings.access == "proxy"
    trusted = access.networks(settings.trusted_proxies)
    return PageGuard(AccessKind.PROXY, user_header=settings.user_header, trusted=trusted)


@contextlib.asynccontextmanager
async def served(show: fleets.Show) -> AsyncIterator[tuple[str, str]]:
    """The addresses of the page and of a proxy, which replaces the header of its clients."""
    async with contextlib.AsyncExitStack() as cleanup:

        async def forward(request: web.Request) -> web.StreamResponse:
            async with session.get(page + request.rel_url.path_qs, headers=USER) as inner:
                answer = web.StreamResponse(status=inner.status)
                await answer.prepare(request)
                async for part in inner.content.iter_any():
                    await answer.write(part)
                return answer

        session = await cleanup.enter_async_context(aiohttp.ClientSession())
        apps = web.Application(), web.Application()
        apps[0].add_routes(routes.routes(show, documented_guard()))
        apps[1].add_routes([web.get("/{_:.*}", forward)])
        page, proxy = [
            await cleanup.enter_async_context(serving(app, shutdown_timeout=0.1)) for app in apps
        ]
        yield page, proxy


def test_the_proxy_passes_the_header_that_the_settings_name() -> None:
    containers = documented("oauth2-proxy.yaml")["spec"]["template"]["spec"]["containers"]
    (arguments,) = [
        container["args"] for container in containers if container["name"] == "oauth2-proxy"
    ]
    port = documented("settings-oidc.yaml")["listen"]["address"].rpartition(":")[2]
    assert {"--pass-user-headers=true", f"--upstream=http://127.0.0.1:{port}"} <= set(arguments)


def test_a_user_of_the_proxy_sees_the_page_and_its_changes() -> None:
    async def done() -> None:
        show = fleets.story(10)
        async with served(show) as (_, proxy), aiohttp.ClientSession() as browser:
            async with browser.get(f"{proxy}/agents/logging/fluent-bit") as answer:
                assert answer.status == 200
                assert "fluent-bit" in await answer.text()
            async with browser.get(f"{proxy}/live?of=") as live:
                assert await live.content.readline() == b"retry: 2000\n"
                show.move(*show.found[:2])
                async for line in live.content:
                    if line == b"event: whole\n":
                        break

    asyncio.run(done())


@pytest.mark.parametrize("header", ["X-Forwarded-User", "X-Forwarded-Email"])
def test_the_header_of_a_browser_is_not_a_sign_in(header: str) -> None:
    """Past the proxy, from another address than that of the proxy."""

    async def done() -> None:
        connector = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))
        async with (
            served(fleets.story(10)) as (page, _),
            aiohttp.ClientSession(connector=connector) as browser,
            browser.get(page, headers={header: "dana@example.com"}) as answer,
        ):
            assert answer.status == 403

    asyncio.run(done())
