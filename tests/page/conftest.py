"""A served page, and a real browser."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Route,
    expect,
    sync_playwright,
)

from gitops_ds.service.web.page import routes
from gitops_ds.service.web.page.access import PageGuard
from tests import http_servers
from tests.page import chromium
from tests.page.fleets import Show, story
from tests.thread_loop import ThreadLoop

AXE = (resources.files("axe_playwright_python") / "axe.min.js").read_text("utf-8")
# WCAG 2.2 at level AA, and what axe-core's authors recommend beyond it.
STANDARDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa", "best-practice"]
expect.set_options(timeout=60_000)  # milliseconds, as of the contexts: the default is 5 s
_CHECK = """(runOnly) => axe.run(document, {runOnly, resultTypes: ["violations"]}).then(
  (found) => found.violations.flatMap((one) => one.nodes.map(
    (node) => one.id + " at " + node.target.join(" ") + ": " + node.failureSummary)))"""


def violations(page: Page) -> list[str]:
    """The violations that axe-core finds on a page."""
    page.evaluate(AXE)
    found: list[str] = page.evaluate(_CHECK, STANDARDS)
    return found


class Served:
    """A view behind the real routes, in a thread with its own loop."""

    def __init__(self, show: Show, door: PageGuard) -> None:
        self.show = show
        app = web.Application()
        app.add_routes(routes.routes(show, door))
        self._loop = ThreadLoop()
        self._serving = http_servers.serving(app, shutdown_timeout=0.1)
        self.url = self._loop.do(self._serving.__aenter__())

    def change(self, change: Callable[[Show], None]) -> None:
        """Changes the view in the thread that reads it."""

        async def done() -> None:
            change(self.show)

        self._loop.do(done())

    def stop(self) -> None:
        self._loop.do(self._serving.__aexit__(None, None, None))
        self._loop.stop()  # streams wait for news; here nothing else ends them


@contextlib.contextmanager
def serving(show: Show, door: PageGuard | None = None) -> Iterator[Served]:
    served = Served(show, door or PageGuard())
    try:
        yield served
    finally:
        served.stop()


@dataclass
class Looker:
    """Opens pages, and records errors and requests to other hosts."""

    browser: Browser
    pictures: Path
    complaints: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    _contexts: list[BrowserContext] = field(default_factory=list)

    def open(self, url: str, **wishes: Any) -> Page:
        wishes.setdefault("viewport", {"width": 1300, "height": 900})
        context = self.browser.new_context(**wishes)
        context.set_default_timeout(60_000)
        self._contexts.append(context)
        page = context.new_page()
        home = url.split("/")[2]

        def judge(route: Route) -> None:
            if route.request.url.split("/")[2] != home:
                self.elsewhere.append(route.request.url)
                route.abort()
            else:
                route.continue_()

        def complaint(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                self.complaints.append(f"{page.url}: {message.text}")

        context.route("**/*", judge)
        page.on("console", complaint)
        page.on("pageerror", lambda error: self.complaints.append(f"{page.url}: {error}"))
        page.goto(url)
        return page

    def picture(self, page: Page, name: str) -> None:
        page.screenshot(path=self.pictures / f"{name}.png", full_page=True)

    def close(self) -> None:
        while self._contexts:
            self._contexts.pop().close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for a module, and no longer: as long as it lives, no other test of this thread can run an
    event loop.
    """
    with sync_playwright() as playwright:
        made = chromium.launched(playwright)
        yield made
        made.close()


@pytest.fixture
def looker(browser: Browser, tmp_path: Path) -> Iterator[Looker]:
    """No page of a test may report an error or send a request to another host."""
    made = Looker(browser, tmp_path)
    yield made
    made.close()
    assert made.complaints == []
    assert made.elsewhere == []


@pytest.fixture
def served(looker: Looker) -> Iterator[Served]:
    with serving(story()) as made:
        yield made
        looker.close()  # a stream that its server cuts is a complaint
