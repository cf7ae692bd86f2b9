"""Every view in a real Chromium: with and without scripts, light and dark, by keyboard, live, and
with hostile text in it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from gitops_ds.core.objects import Key
from gitops_ds.core.values import replace
from gitops_ds.service.web.page.view import PageEvent
from tests.page import fleets
from tests.page.conftest import Looker, Served, serving
from tests.rollouts.rollout_world import SECOND
from tests.status.staged_world import watched

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]
NODE = "ip-10-0-7-7.eu-west-1.compute.internal"
VIEWS = {
    "overview": "/",
    "agent": "/agents/logging/fluent-bit",
    "agent-nodes": "/agents/logging/fluent-bit/nodes",
    "changed": "/agents/node-agents/node-exporter",
    "nodes": "/nodes",
    "node": f"/nodes/{NODE}",
    "commit": f"/commits/{fleets.NEW}",
    "events": "/events",
}
HEADING = {
    "overview": "Agents",
    "agent": "fluent-bit",
    "agent-nodes": "Nodes of fluent-bit",
    "changed": "node-exporter",
    "nodes": "Nodes",
    "node": NODE,
    "commit": "fluent-bit 4.0.3, gpu-plugin 0.18",
    "events": "Events",
}

FAULTS = (Path(__file__).parent / "faults.js").read_text("utf-8")


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_whole_and_accessible(
    looker: Looker, served: Served, view: str, theme: str, scripts: bool
) -> None:
    page = looker.open(served.url + VIEWS[view], color_scheme=theme, java_script_enabled=scripts)
    expect(page.locator("h1")).to_have_text(HEADING[view])
    if not scripts:
        # Scripts of the browser's driver don't run either, so what is looked at is the same page
        # with them.
        assert page.locator("button:visible:not(form button)").count() == 0
        looker.picture(page, f"{view}-{theme}-plain")
        return
    assert page.evaluate(FAULTS) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    looker.picture(page, f"{view}-{theme}")


def test_without_scripts_links_filter_and_refresh_do(looker: Looker, served: Served) -> None:
    page = looker.open(served.url, java_script_enabled=False)
    assert 'http-equiv="refresh"' in page.content()
    page.get_by_label("Filter").fill("gpu")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name="gpu-plugin", exact=True).click()
    expect(
        page.get_by_text("gitops-ds rollback ds/gpu-plugin -n gpu --to-revision 1")
    ).to_be_visible()
    page.get_by_role("link", name="Every node as a table").click()
    expect(page.locator("tbody tr")).to_have_count(60)
    page.locator("tbody a").first.click()
    expect(page.get_by_role("heading", name="Agents here")).to_be_visible()


def test_sorting_and_counts_are_links(looker: Looker, served: Served) -> None:
    page = looker.open(served.url)
    # who is in trouble comes first
    assert page.locator("tbody th a").all_inner_texts()[0] == "gpu-plugin"
    page.get_by_role("link", name="Namespace").click()
    assert page.locator("th[aria-sort]").inner_text().startswith("Namespace")
    found = page.locator("tbody td:nth-child(2)").all_inner_texts()
    assert found == sorted(found)
    page.get_by_role("link", name=re.compile("1.*Failed")).click()
    assert page.locator("tbody th a").all_inner_texts() == ["gpu-plugin"]


def test_the_keyboard_alone_is_enough(looker: Looker, served: Served) -> None:
    page = looker.open(served.url)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    page.keyboard.press("/")
    page.keyboard.type("fluent")
    expect(page.locator("tbody tr:visible")).to_have_count(1)
    reached = []
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.textContent.trim()"))
        if reached[-1] == "fluent-bit":
            break
    assert reached[-1] == "fluent-bit", reached
    outline = page.evaluate(
        "getComputedStyle(document.activeElement).outlineStyle + "
        "getComputedStyle(document.activeElement).outlineWidth"
    )
    assert outline == "solid3px"
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("fluent-bit")
    expect(page.locator("#link")).to_have_text("live")
    page.keyboard.press("g")
    page.keyboard.press("e")
    expect(page.locator("h1")).to_have_text("Events")


def test_a_filter_that_is_answered_late_keeps_the_focus(looker: Looker, served: Served) -> None:
    page = looker.open(served.url)
    expect(page.locator("#link")).to_have_text("live")
    late = list[Route]()

    def hold(route: Route) -> None:
        late.append(route)

    page.route(re.compile("[?]q=fluent$"), hold)
    page.get_by_label("Filter").focus()
    link = page.locator("tbody th a", has_text="fluent-bit")
    with page.expect_request(re.compile("[?]q=fluent$")):
        page.keyboard.type("fluent")
    link.focus()
    page.evaluate("document.getElementById('results').firstElementChild.dataset.old = '1'")
    late.pop().continue_()
    expect(page.locator("[data-old]")).to_have_count(0)
    expect(link).to_be_focused()


def test_the_filter_applies_while_typing_also_after_the_page_came_whole(
    looker: Looker, served: Served
) -> None:
    page = looker.open(served.url)
    expect(page.locator("#link")).to_have_text("live")
    page.get_by_label("Filter").focus()
    page.keyboard.type("fluent")
    expect(page.locator("tbody tr:visible")).to_have_count(1)
    expect(page).to_have_url(re.compile("[?]q=fluent$"))
    served.change(lambda show: show.move(*show.found[:4]))  # another shape
    expect(page.locator("#counts")).to_contain_text("4 all")
    assert page.evaluate("document.activeElement.id") == "q"
    for _ in "fluent":
        page.keyboard.press("Backspace")
    page.keyboard.type("gpu")
    expect(page.locator("tbody tr:visible")).to_have_count(1)
    expect(page.locator("tbody tr:visible")).to_contain_text("gpu-plugin")


def test_a_change_between_the_filter_and_its_answer_is_shown(
    looker: Looker, served: Served
) -> None:
    page = looker.open(served.url)
    expect(page.locator("#link")).to_have_text("live")

    def answer_after_a_change(route: Route) -> None:
        served.change(lambda show: show.move(*show.found[:4]))
        route.continue_()

    page.route(re.compile("[?]q=fluent$"), answer_after_a_change, times=1)
    page.get_by_label("Filter").fill("fluent")
    expect(page.locator("#counts")).to_contain_text("4 all")
    expect(page.locator("tbody tr:visible")).to_have_count(1)


def test_a_change_while_the_page_is_loaded_again_is_shown(looker: Looker, served: Served) -> None:
    page = looker.open(served.url)
    expect(page.locator("#link")).to_have_text("live")

    def change_after_the_answer(route: Route) -> None:
        answer = route.fetch()
        served.change(lambda show: show.move(*show.found[:4]))
        route.fulfill(response=answer)

    page.route(re.compile("[?]q=gpu$"), change_after_the_answer, times=1)
    page.get_by_label("Filter").fill("gpu")
    expect(page.locator("#counts")).to_contain_text("4 all")


@pytest.mark.parametrize("refused", ["/live", "/?"], ids=["stream", "page"])
def test_a_page_that_a_proxy_answers_for_its_service_returns_later(
    looker: Looker, served: Served, refused: str
) -> None:
    page = looker.open(served.url + "/?sort=name")
    expect(page.locator("#link")).to_have_text("live")
    page.clock.install()
    path = re.compile(re.escape(served.url + refused))
    page.route(path, lambda route: route.fulfill(status=503, body="no healthy upstream"))
    served.change(lambda show: show.move(*show.found[:4]))
    expect(page.locator("#link")).to_have_text("not connected")
    page.unroute(path)
    served.change(lambda show: show.move(*show.found[:3]))
    page.clock.run_for(5_000)
    expect(page.locator("#counts")).to_contain_text("3 all")
    expect(page.locator("#link")).to_have_text("live")
    looker.complaints.clear()  # the browser logs each answer of 503


def test_the_filter_of_nodes_finds_those_of_other_parts(looker: Looker) -> None:
    with serving(fleets.story(600)) as made:
        page = looker.open(made.url + "/nodes")
        expect(page.locator("tbody tr")).to_have_count(250)
        page.get_by_label("Filter").press_sequentially("ip-10-2-77-7")
        expect(page.locator("tbody tr")).to_have_count(1)
        expect(page.locator("#results")).to_contain_text(" of 1")
        looker.close()


def test_the_keys_are_listed_and_lead_to_pages(looker: Looker, served: Served) -> None:
    page = looker.open(served.url)
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keys")
    expect(keys).to_contain_text("filter")
    page.keyboard.press("g")
    page.keyboard.press("n")
    expect(keys).to_be_visible()
    page.get_by_role("button", name="Close").click()
    page.keyboard.press("g")
    page.keyboard.press("w")
    expect(page).to_have_url(served.url + "/wall")


def test_the_map_is_one_stop_and_arrow_keys_walk_it(looker: Looker, served: Served) -> None:
    page = looker.open(served.url + VIEWS["agent"])
    stops = page.locator(".cells i[tabindex]")
    expect(stops).to_have_count(1)
    stops.focus()

    def here() -> str:
        return str(page.evaluate("document.activeElement.getAttribute('aria-label')"))

    first = here()
    assert re.fullmatch(r"ip-\S+: up to date and available · commit 2e9dbbbbbbbb", first)
    page.keyboard.press("ArrowRight")
    second = here()
    assert second != first
    page.keyboard.press("ArrowLeft")
    assert here() == first
    page.keyboard.press("ArrowDown")
    assert here() not in (first, second)
    page.keyboard.press("End")
    page.keyboard.press("Home")
    assert here() == first
    expect(stops).to_have_count(1)
    expect(page.locator("#tip")).to_contain_text(first.partition(":")[0])
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text(first.partition(":")[0])


def test_the_map_shows_why_a_node_is_not_green(looker: Looker, served: Served) -> None:
    page = looker.open(served.url + "/agents/gpu/gpu-plugin")
    page.locator(".cells i.x").first.hover()
    expect(page.locator("#tip")).to_contain_text(
        "broken: the template is the cause · ImagePullBackOff · commit 2e9dbbbbbbbb"
    )
    expect(page.locator("#why")).to_contain_text(
        "Image pull back off on 2 nodes, to blame: the template"
    )
    page.locator(".cells i.x").first.click()
    expect(page.locator("#agents")).to_contain_text("not found")


def test_the_theme_button_wins_over_the_system(looker: Looker, served: Served) -> None:
    page = looker.open(served.url, color_scheme="dark")

    def ground() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    dark = ground()
    page.get_by_role("button", name="Theme: auto").click()
    light = ground()
    assert light != dark
    page.reload()
    assert ground() == light
    page.get_by_role("button", name="Theme: light").click()
    assert ground() == dark


def test_only_what_changed_is_replaced(looker: Looker, served: Served) -> None:
    page = looker.open(served.url)
    expect(page.locator("#link")).to_have_text("live")
    page.evaluate("document.querySelectorAll('tbody tr').forEach((row) => { row.mark = 'old'; })")

    def mend(show: fleets.Show) -> None:
        broken = next(one for one in show.found if one.key.name == "csi-node")
        on = fleets.nodes(60)
        made = fleets.agent(
            fleets.Fleet(
                "csi-node",
                "storage",
                ((fleets.template("csi-node", "cr.example.com/csi:2.1"), fleets.OLDER),),
            ),
            on,
        )
        show.move(*(made if one is broken else one for one in show.found))

    served.change(mend)
    expect(page.locator("tr[id='r/storage/csi-node']")).to_contain_text("Healthy")
    assert page.evaluate(
        "[...document.querySelectorAll('tbody tr')].filter((row) => !row.mark).map((row) => row.id)"
    ) == ["r/storage/csi-node"]
    expect(page.locator("#counts")).to_contain_text("3 ✓ Healthy")
    expect(page.locator("#announcement")).to_contain_text("3 Healthy")


def test_squares_change_colour_in_their_place_and_the_focus_stays(
    looker: Looker, served: Served
) -> None:
    page = looker.open(served.url + VIEWS["agent"])
    expect(page.locator("#link")).to_have_text("live")
    page.locator(".cells i[tabindex]").focus()
    page.evaluate("document.querySelectorAll('.cells i').forEach((one) => { one.mark = 'old'; })")
    before = page.locator(".cells i.b").count()

    def advance(show: fleets.Show) -> None:
        was = next(one for one in show.found if one.key.name == "fluent-bit")
        kinds = tuple(
            (fleets.template("fluent-bit", f"cr.example.com/fluent-bit:{tag}"), commit)
            for tag, commit in (("4.0.1", fleets.OLD), ("4.0.3", fleets.NEW))
        )
        made = fleets.agent(fleets.Fleet("fluent-bit", "logging", kinds, on=50), fleets.nodes(60))
        show.move(*(made if one is was else one for one in show.found))

    served.change(advance)
    expect(page.locator(".cells i.b")).to_have_count(10)
    assert before > 10
    assert page.locator(".cells i").count() == 60
    assert page.evaluate("[...document.querySelectorAll('.cells i')].every((one) => one.mark)")
    assert page.evaluate("document.activeElement.localName") == "i"
    expect(page.locator("#progress")).to_contain_text("83 %")


def test_hostile_text_stays_text(looker: Looker) -> None:
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>\"'><b id=evil>"
    show = fleets.story()
    on = fleets.nodes(4)
    called = on[0]["metadata"]["name"]
    first = fleets.template("evil", f"a:1{evil}"), fleets.OLD
    fleet = fleets.Fleet(
        "evil",
        "logging",
        (first, (fleets.template("evil", evil), fleets.NEW)),
        troubles={called: (f"Bad{evil}", evil)},
        annotations={"note": evil},
    )
    show.found = (fleets.agent(fleet, on),)
    show.wants = {
        Key("apps", "DaemonSet", "logging", "evil"): fleets.wanted(
            replace(fleet, templates=(first,))
        )
    }
    show.infos = {fleets.NEW: fleets.info(fleets.NEW, evil, evil)}
    show.happened = [
        PageEvent(fleets.NOW, f"Kind{evil}", evil, "bad", show.found[0].key, fleets.NEW)
    ]
    show.cluster = evil
    with serving(show) as served:
        for path in (
            "/",
            "/agents/logging/evil",
            "/agents/logging/evil/nodes",
            f"/commits/{fleets.NEW}",
            "/events",
            f"/nodes/{called}",
            f"/?q={evil}",
            f"/{evil}",
        ):
            page: Page = (
                looker.open(served.url + path) if path[1:2] != "<" else looker.open(served.url)
            )
            page.on(
                "dialog", lambda dialog: looker.complaints.append(f"a dialog: {dialog.message}")
            )
            if path[1:2] != "<":
                assert page.locator("#evil").count() == 0
                assert page.locator("img").count() == 0
                assert "onerror" in page.content()
            looker.close()


def test_secrets_are_hidden_in_what_changed(looker: Looker) -> None:
    show = fleets.story()
    old, new = (
        fleets.template("agent", "a:1", [{"name": "API_TOKEN", "value": value}])
        for value in ("hunter2hunter2", "correcthorsebattery")
    )
    fleet = fleets.Fleet("agent", "logging", ((old, fleets.OLD), (new, fleets.NEW)))
    show.found = (fleets.agent(fleet, fleets.nodes(3)),)
    show.wants = {show.found[0].key: fleets.wanted(replace(fleet, templates=((old, fleets.OLD),)))}
    with serving(show) as served:
        for path in ("/agents/logging/agent", f"/commits/{fleets.NEW}"):
            html = looker.open(served.url + path).content()
            looker.close()
            assert "API_TOKEN" in html
            assert "hunter2" not in html
            assert "correcthorse" not in html


def test_a_staged_rollout_is_followed_live_from_the_canary_to_its_halt(looker: Looker) -> None:
    there = watched()
    there.commit(SECOND)
    there.rounds(6)
    with serving(fleets.Show(found=(there.agent(),))) as served:
        page = looker.open(f"{served.url}/agents/logging/agent")
        expect(page.locator("#link")).to_have_text("live")
        rollout = page.locator("#rollout")
        expect(rollout).to_contain_text("2 nodes at risk, the limit is 4")
        expect(rollout.locator("tbody tr")).to_have_count(2)
        expect(rollout.locator("tbody tr").first).to_contain_text("open")
        expect(rollout.locator(".bar").first).to_have_attribute("aria-label", "2 soaking")
        assert page.evaluate(FAULTS) == []
        looker.picture(page, "rollout-canary")
        there.rounds(12)
        served.change(lambda show: show.move(there.agent()))
        expect(rollout.locator("tbody tr").first).to_contain_text("passed")
        there.world.bad_images.add(SECOND)
        for pod in there.world.pods.values():
            if pod["spec"]["containers"][0]["image"] == SECOND:
                there.world.start(pod, ready=False)
        there.rounds(60)
        served.change(lambda show: show.move(there.agent()))
        expect(rollout.get_by_role("alert")).to_contain_text("ImagePullBackOff")
        expect(page.locator("#head")).to_contain_text("Failed")
        assert page.evaluate(FAULTS) == []
        looker.picture(page, "rollout-halted")
        looker.close()
