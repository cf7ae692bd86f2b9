"""The real browser of the tests."""

from __future__ import annotations

from typing import Final

from playwright.sync_api import Browser, Playwright

PROGRAM: Final = "/usr/bin/chromium"
# The suggestions of the address bar are two pages of their own in each window, and a spare process
# waits for the next page: half of the CPU of a test.
_UNUSED: Final = ("WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "SpareRendererForSitePerProcess")
# The features that Playwright disables: the last option of that name counts.
_PLAYWRIGHT: Final = (
    "AimEnabled",
    "AvoidCorsURLLoaderRestartOnRedirect",
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "HttpsFirstBalancedModeAutoEnable",
    "HttpsUpgrades",
    "LensOverlay",
    "MediaRouter",
    "NetworkTimeServiceQuerying",
    "OptimizationHints",
    "PaintHolding",
    "PreconnectToSearch",
    "ThirdPartyStoragePartitioning",
)


def launched(playwright: Playwright) -> Browser:
    """A new browser; the caller closes it."""
    features = ",".join((*_UNUSED, *_PLAYWRIGHT))
    return playwright.chromium.launch(
        executable_path=PROGRAM, args=["--no-sandbox", f"--disable-features={features}"]
    )
