"""Sign-in by OpenID Connect, as docs/page.md configures it: the documented settings of the page and
arguments of oauth2-proxy, with a provider and a proxy that speak the protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from ruamel.yaml import YAML

from gitops_ds.settings.base import decode
from gitops_ds.settings.listen import PageSettings
from gitops_ds.web.page import access, routes
from gitops_ds.web.page.access import AccessKind, PageGuard
from tests.docs import pages
from tests.page import fleets, oidc

PAGE = pages.ROOT / "docs" / "page.md"


def documented(file: str) -> Any:
    """The document of a YAML block of the page."""
    blocks = [block for section in pages.sections(PAGE) for block in section.blocks]
    text = next(block.text for block in blocks if block.file == file)
    return YAML(typ="safe", pure=True).load(text)


def door() -> PageGuard:
    settings = decode(PageSettings, documented("settings-oidc.yaml")["listen"]["page"])
    assert settings.access == "proxy"
    trusted = access.networks(settings.trusted_proxies)
    return PageGuard(AccessKind.PROXY, user_header=settings.user_header, trusted=trusted)


@dataclass(frozen=True)
class Stack:
    """The addresses of the page and of the proxy in front of it."""

    page: str
    proxy: str


@contextlib.asynccontextmanager
async def stack(show: fleets.Show, provider: oidc.Provider) -> AsyncIterator[Stack]:
    """Page, proxy and provider on ports of their own."""
    containers = documented("oauth2-proxy.yaml")["spec"]["template"]["spec"]["containers"]
    flags = oidc.flags(next(one for one in containers if one["name"] == "oauth2-proxy")["args"])
    assert flags["pass-user-headers"] == "true"
    async with contextlib.AsyncExitStack() as cleanup:

        async def serve(app: web.Application) -> str:
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            cleanup.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            return f"http://127.0.0.1:{runner.addresses[0][1]}"

        app = web.Application()
        app.add_routes(routes.routes(show, door()))
        page = await serve(app)
        provider.issuer = await serve(provider.app())
        session = await cleanup.enter_async_context(aiohttp.ClientSession(auto_decompress=False))
        local = {**flags, "upstream": page, "oidc-issuer-url": provider.issuer}
        proxy = oidc.Proxy(local, session)
        address = await serve(proxy.app())
        local["redirect-url"] = f"{address}/oauth2/callback"
        yield Stack(page, address)


def client(address: str = "127.0.0.1") -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(local_addr=(address, 0)),
        cookie_jar=aiohttp.CookieJar(unsafe=True),
    )


def test_a_user_of_the_provider_sees_the_page_and_its_changes() -> None:
    async def done() -> None:
        show = fleets.story(10)
        async with stack(show, oidc.Provider()) as served, client() as browser:
            async with browser.get(f"{served.proxy}/agents/logging/fluent-bit") as answer:
                assert answer.status == 200
                assert str(answer.url) == f"{served.proxy}/agents/logging/fluent-bit"
                assert "Content-Security-Policy" in answer.headers
                assert "fluent-bit" in await answer.text()
            async with browser.get(f"{served.proxy}/live?of=") as live:
                assert await live.content.readline() == b"retry: 2000\n"
                show.move(*show.found[:2])
                async for line in live.content:
                    if line == b"event: whole\n":
                        break

    asyncio.run(done())


def test_an_account_of_another_domain_is_refused() -> None:
    async def done() -> None:
        provider = oidc.Provider("eve@other.example.org")
        async with (
            stack(fleets.story(10), provider) as served,
            client() as browser,
            browser.get(served.proxy) as answer,
        ):
            assert answer.status == 403
            assert "fluent-bit" not in await answer.text()

    asyncio.run(done())


@pytest.mark.parametrize("header", ["X-Forwarded-User", "X-Forwarded-Email"])
def test_the_header_of_a_browser_is_not_a_sign_in(header: str) -> None:
    async def done() -> None:
        forged = {header: "dana@example.com"}
        async with stack(fleets.story(10), oidc.Provider()) as served:
            async with (
                client() as browser,
                browser.get(served.proxy, headers=forged, allow_redirects=False) as answer,
            ):
                assert answer.status == 302
                assert "/authorize?" in answer.headers["Location"]
            # past the proxy, from another address than that of the proxy
            async with (
                client("127.0.0.2") as browser,
                browser.get(served.page, headers=forged) as answer,
            ):
                assert answer.status == 403

    asyncio.run(done())
