"""The page of an agent on 5,000 nodes in Chromium: time to first byte, time to interactive, and a
change of 100 nodes.

Compared with the page of 60 nodes in the same run.
"""

from __future__ import annotations

import statistics
import sys
import time
import urllib.request
from functools import partial

from playwright.sync_api import Page, sync_playwright

from gitops_ds.status.agents import Agent
from tests.page import chromium, fleets
from tests.page.conftest import Served, serving

PATH = "/agents/logging/fluent-bit"
READY = "performance.getEntriesByName('ready')[0].startTime"
PAINTED = (
    "new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(performance.now()))))"
)


def first_byte(url: str) -> tuple[float, int, int]:
    """Milliseconds until the first byte of a page that is not cached, and its size with
    gzip and without.
    """
    request = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})
    began = time.perf_counter()
    with urllib.request.urlopen(request) as answer:
        answer.read(1)
        spent = (time.perf_counter() - began) * 1000
        small = len(answer.read()) + 1
    with urllib.request.urlopen(url) as answer:
        return spent, small, len(answer.read())


def fluent(count: int, on: int) -> fleets.Fleet:
    tags = (("4.0.1", fleets.OLD), ("4.0.3", fleets.NEW))
    templates = tuple(
        (fleets.template("fluent-bit", f"cr.example.com/fluent-bit:{tag}"), commit)
        for tag, commit in tags
    )
    return fleets.Fleet("fluent-bit", "logging", templates, on=on)


def put(agent: Agent, show: fleets.Show) -> None:
    show.move(*(agent if one.key == agent.key else one for one in show.found))


def measure(page: Page, served: Served, count: int) -> dict[str, float]:
    """One run: all in milliseconds, sizes in bytes."""
    url, nodes = served.url + PATH, fleets.nodes(count)
    served.change(partial(put, fleets.agent(fluent(count, count // 2 - 1), nodes)))
    strange, _, _ = first_byte(url)
    served.change(partial(put, fleets.agent(fluent(count, count // 2), nodes)))
    byte, small, whole = first_byte(url)
    again, _, _ = first_byte(url)
    page.goto(url)
    page.wait_for_function("document.querySelector('#link').textContent === 'live'")
    painted = float(page.evaluate(PAINTED))
    ready = float(page.evaluate(READY))
    frame = statistics.median(page.evaluate(FRAMES))
    agents = [
        fleets.agent(fluent(count, on), nodes)
        for on in (count * 3 // 5, count * 3 // 5 + min(100, count // 5))
    ]
    for agent in agents:
        served.change(partial(put, agent))
        updated = int(page.evaluate("Number(document.body.dataset.updated) || 0"))
        page.wait_for_function(
            "(n) => Number(document.body.dataset.updated) > n", arg=updated - (updated > 0)
        )
        page.wait_for_timeout(1500)
    update = float(page.evaluate("performance.getEntriesByName('update').at(-1).duration"))
    return {
        "first byte, rendered again": byte,
        "first byte, every node new as well": strange,
        "first byte, drawn before": again,
        "until the script is done": ready,
        "until painted and live": painted,
        "a frame while walking the map": frame,
        "a change of 100 nodes": update,
        "bytes": whole,
        "bytes with gzip": small,
    }


FRAMES = """async () => {
  const found = [], map = document.querySelector(".cells i");
  map.focus();
  for (let i = 0; i < 30; i++) {
    const began = performance.now();
    document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: i % 2 ? "ArrowRight" : "ArrowDown", bubbles: true }));
    document.body.offsetHeight;
    found.push(performance.now() - began);
    await new Promise(requestAnimationFrame);
  }
  return found;
}"""  # noqa: E501


def main(runs: int = 3) -> None:
    with sync_playwright() as playwright:
        browser = chromium.launched(playwright)
        result: dict[int, list[dict[str, float]]] = {}
        for count in (60, 5000):
            with serving(fleets.story(count)) as served:
                for _ in range(runs):
                    context = browser.new_context(viewport={"width": 1300, "height": 900})
                    result.setdefault(count, []).append(measure(context.new_page(), served, count))
                    context.close()
        browser.close()
    sys.stdout.write(f"{'':36}{'60 nodes':>12}{'5,000 nodes':>14}\n")
    for name in result[60][0]:
        few, many = (statistics.median(run[name] for run in result[count]) for count in (60, 5000))
        unit = "" if name.startswith("bytes") else " ms"
        sys.stdout.write(f"{name:36}{few:>9.0f}{unit:3}{many:>11.0f}{unit:3}\n")


if __name__ == "__main__":
    main()
