"""Sign-in by OpenID Connect in a real Chromium. As long as it lives, no test of its module can run
an event loop of its own.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.page import fleets, oidc
from tests.page.conftest import Looker
from tests.page.test_sign_in_by_oidc import stack
from tests.thread_loop import ThreadLoop

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]


def test_a_browser_signs_in_and_follows_the_page_live(looker: Looker) -> None:
    show, loop = fleets.story(10), ThreadLoop()
    context = stack(show, oidc.Provider())
    served = loop.do(context.__aenter__())

    async def change() -> None:
        show.move(*show.found[:2])

    try:
        page = looker.open(served.proxy)
        expect(page.locator("#link")).to_have_text("live")
        loop.do(change())
        expect(page.locator("tbody tr")).to_have_count(2)
        looker.close()
    finally:
        loop.do(context.__aexit__(None, None, None))
        loop.stop()
