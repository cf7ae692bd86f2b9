"""Every page meets WCAG 2.2 AA as axe-core checks it, and fits on a phone and on a wall."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from gitops_ds.core.objects import CommitId
from gitops_ds.core.sources.source_status import Condition, SourceStatus
from gitops_ds.core.values import replace
from gitops_ds.service.web.page.access import AccessKind, PageGuard, PageToken
from gitops_ds.status.cluster_reports import ClusterRow
from tests.page import fleets
from tests.page.conftest import Looker, Served, serving, violations
from tests.page.test_clusters import EU_1, STAGING, report
from tests.page.test_in_a_browser import VIEWS
from tests.rollouts.rollout_world import SECOND
from tests.status.staged_world import Watched, watched

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]
PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1440, "height": 900}
WALL = {"width": 1920, "height": 1080}
STAGED = {
    "staged": "/agents/logging/agent",
    "wall": "/wall",
    "clusters": "/clusters",
    "not-found": "/no/such/page",
}
ALL = VIEWS | STAGED
# Elements that are wider than the screen, or whose content is cut off or scrolls sideways.
TOO_WIDE = """() => [...document.querySelectorAll("body *")].filter((one) => {
  if (!one.getClientRects().length || one.closest(".unseen, .skip, svg, option")) return false;
  const overflow = getComputedStyle(one).overflowX;
  return one.getBoundingClientRect().right > innerWidth + 1
    || (overflow !== "visible" && one.scrollWidth > one.clientWidth + 1);
}).map((one) => one.localName + "." + one.className + ": " + one.textContent.slice(0, 60))"""

# Targets below the size for a finger: https://www.w3.org/TR/WCAG22/#target-size-minimum
TOO_SMALL = """() => [...document.querySelectorAll("a, button, input, summary")].filter((one) => {
  if (!one.getClientRects().length || one.closest(".unseen, .skip")) return false;
  const box = one.getBoundingClientRect();
  return box.width < 24 || box.height < 24;
}).map((one) => one.localName + "." + one.className + ": " + one.textContent.slice(0, 60))"""
SMALL_TEXT = """(least) => [...document.querySelectorAll("body *")].filter((one) =>
  one.getClientRects().length && !one.closest(".unseen, .skip, svg")
  && [...one.childNodes].some((part) => part.nodeType === 3 && part.textContent.trim())
  && parseFloat(getComputedStyle(one).fontSize) < least
).map((one) => one.localName + "." + one.className + ": " + one.textContent.slice(0, 60))"""


def halted() -> Watched:
    there = watched()
    there.world.bad_images.add(SECOND)
    there.commit(SECOND)
    there.rounds(60)
    return there


def full_show() -> fleets.Show:
    """The story with a halted rollout, a repository in trouble, one without, and clusters."""
    show = fleets.story(60)
    sources = [
        SourceStatus(
            "fleet",
            "git.example.com/platform/node-agents",
            "main",
            Condition.REJECTED,
            "commit 77aa01bc23de is not applied: agents/falco/daemonset.yaml:27:7: DS003 unknown "
            'field "tolerationz"; the last good commit stays applied',
            CommitId("77aa01bc23de" + "0" * 28),
            CommitId(fleets.NEW),
            since=fleets.NOW - 4000,
            looked=fleets.NOW - 20,
        ),
        SourceStatus(
            "storage",
            "git.example.com/storage/agents",
            "main",
            Condition.SYNCED,
            newest=CommitId(fleets.OLDER),
            applied=CommitId(fleets.OLDER),
            since=fleets.NOW - 90_000,
            looked=fleets.NOW - 30,
        ),
    ]
    show.followed = sources
    owned = [replace(one, source=sources[one.key.namespace == "storage"]) for one in show.found]
    show.found = (*owned[:-1], halted().agent())
    show.ordered = [
        ClusterRow("staging", STAGING, report("https://staging.example.com/")),
        ClusterRow("eu-1", EU_1, None, "no report yet"),
    ]
    return show


@pytest.fixture
def whole(looker: Looker) -> Iterator[Served]:
    with serving(full_show()) as made:
        yield made
        looker.close()


def opened(looker: Looker, served: Served, view: str, **wishes: Any) -> Page:
    page = looker.open(served.url + ALL[view], **wishes)
    expect(page.locator("h1")).to_have_count(1)
    # An unknown path is answered with 404, which the console of a browser reports.
    looker.complaints[:] = [complaint for complaint in looker.complaints if "404" not in complaint]
    return page


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("screen", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_axe_finds_nothing_on_any_page(
    looker: Looker, whole: Served, theme: str, screen: dict[str, int]
) -> None:
    found = {}
    for view in ALL:
        page = opened(looker, whole, view, color_scheme=theme, viewport=screen)
        if faults := violations(page):
            found[view] = faults
        looker.close()
    assert found == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_in_the_keys_and_at_the_sign_in(
    looker: Looker, tmp_path: Path, theme: str
) -> None:
    (tmp_path / "token").write_text("a token of some length")
    guard = PageGuard(AccessKind.TOKEN, PageToken(tmp_path / "token"))
    with serving(fleets.story(10), guard) as served:
        page = looker.open(served.url, color_scheme=theme)
        assert violations(page) == []
        page.get_by_label("Token").fill("a token of some length")
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("#link")).to_have_text("live")
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        assert violations(page) == []
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()
        looker.close()


@pytest.mark.parametrize("width", [320, 390])
def test_on_a_phone_nothing_is_cut_off_or_wider_than_the_screen(
    looker: Looker, whole: Served, width: int
) -> None:
    found = {}
    for view in ALL:
        page = opened(looker, whole, view, viewport={"width": width, "height": 844})
        looker.picture(page, f"{view}-phone-{width}")
        if wide := page.evaluate(TOO_WIDE):
            found[view] = wide
        looker.close()
    assert found == {}


def test_on_a_phone_a_finger_hits_every_link(looker: Looker, whole: Served) -> None:
    found = {}
    for view in ALL:
        page = opened(looker, whole, view, viewport={"width": 360, "height": 780})
        if small := page.evaluate(TOO_SMALL):
            found[view] = small
        looker.close()
    assert found == {}


def test_on_a_phone_the_head_has_two_rows(looker: Looker, whole: Served) -> None:
    page = opened(looker, whole, "overview", viewport={"width": 360, "height": 780})
    box = page.locator(".top").bounding_box()
    assert box
    assert box["height"] < 90


def test_on_a_phone_rows_are_not_tall(looker: Looker, whole: Served) -> None:
    for view in ("agent", "events"):
        page = opened(looker, whole, view, viewport=PHONE)
        heights = page.evaluate(
            "[...document.querySelectorAll('#history tbody tr, .events tbody tr')]"
            ".map((row) => row.getBoundingClientRect().height)"
        )
        assert heights
        assert max(heights) < 190, view
        looker.close()


@pytest.mark.parametrize("size", [WALL, {"width": 3840, "height": 2160}], ids=["HD", "4K"])
def test_the_wall_fills_the_screen_without_scrolling(
    looker: Looker, whole: Served, size: dict[str, int]
) -> None:
    page = opened(looker, whole, "wall", viewport=size)
    looker.picture(page, f"wall-{size['width']}")
    assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
    assert page.evaluate(TOO_WIDE) == []
    tiles = page.locator(".tile")
    expect(tiles).to_have_count(6)
    expect(tiles.first).to_contain_text("Failed")
    bottom = page.evaluate(
        "Math.max(...[...document.querySelectorAll('.tile')]"
        ".map((one) => one.getBoundingClientRect().bottom))"
    )
    assert bottom > 0.95 * size["height"]
    size_of_text = float(page.evaluate("parseFloat(getComputedStyle(document.body).fontSize)"))
    assert size_of_text >= 18 * size["width"] / 1920
    assert page.evaluate(SMALL_TEXT, 14 * size["width"] / 1920) == []
    expect(page.get_by_role("button", name="Full screen")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("unknown field")


def test_text_is_larger_on_a_screen_of_4k(looker: Looker, whole: Served) -> None:
    for view in ("overview", "staged", "events"):
        page = opened(looker, whole, view, viewport={"width": 3840, "height": 2160})
        looker.picture(page, f"{view}-3840")
        assert page.evaluate(SMALL_TEXT, 16) == [], view
        assert page.evaluate(TOO_WIDE) == [], view
        looker.close()


def test_the_wall_changes_live(looker: Looker, whole: Served) -> None:
    page = opened(looker, whole, "wall", viewport=WALL)
    expect(page.locator("#link")).to_have_text("live")
    there = halted()
    there.commit("agent:1")
    there.rounds(10)

    def recover(show: fleets.Show) -> None:
        show.followed = [replace(one, condition=Condition.SYNCED) for one in show.followed]
        show.move(*show.found[:-1], there.agent())

    whole.change(recover)
    expect(page.locator("#wr\\/logging\\/agent")).not_to_contain_text("Failed")
    expect(page.get_by_role("alert")).to_have_count(0)
