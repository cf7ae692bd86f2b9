"""The real browser of the tests."""

from __future__ import annotations

from typing import Final

from playwright.sync_api import Browser, Playwright

# Chromium without the parts around the page (a window, its address bar), which take half of the
# CPU of a test.
# https://developer.chrome.com/docs/chromium/headless#old_and_new_headless_modes
PROGRAM: Final = "/usr/bin/chromium-headless-shell"


def launched(playwright: Playwright) -> Browser:
    """A new browser; the caller closes it."""
    return playwright.chromium.launch(executable_path=PROGRAM, args=["--no-sandbox"])
