"""The pictures of the documentation: the demo's cluster with more nodes, in a real Chromium.

`python -m tests.page.pictures` writes docs/images/. With a directory as argument it writes more of
them there, in both themes, for a desktop, a wall and a phone.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

from playwright.sync_api import Browser, expect, sync_playwright

from gitops_ds.cli.demo import script
from gitops_ds.cli.demo.stage import AUTHOR, STAGED, DemoStage, open_stage, served_page
from gitops_ds.core.rollouts.staged_rollout import StageState
from gitops_ds.source.git import local_worktree
from gitops_ds.status.agents import Agent
from tests.docs.pages import ROOT
from tests.page import chromium

NODES, SPEED = 96, 6.0
POLICY = """\
stages:
  - {name: canary, nodes: {count: 2}, soak: 60s}
  - {name: wave, nodes: {percent: 25%}, soak: 30s, pace: {start: 4, max: 12}}
  - {name: rest, soak: 60s, pace: {start: 8, max: 20}}
limits: {atRisk: {cluster: 30%}}
"""
AGENT = f"agents/logging/{STAGED}"
SCREENS = {"desktop": (1440, 900), "phone": (390, 844)}
PAGES = {
    "overview": "",
    "agent": AGENT,
    "nodes": "nodes",
    "events": "events",
    "node": "nodes/node-7",
    "none": "no/such/page",
}


@dataclass
class Story:
    """The scenes in a loop of their own; a photographer in another thread. `moments` are the names
    of what can be seen, with the address; None at the end.
    """

    moments: SimpleQueue[tuple[str, str] | None] = field(default_factory=SimpleQueue)
    taken: SimpleQueue[None] = field(default_factory=SimpleQueue)

    def run(self) -> None:
        try:
            script.run(self._play(), SPEED)
        finally:
            self.moments.put(None)

    async def _play(self) -> None:
        # The page shows the directory of the repository.
        folder = Path(tempfile.gettempdir()) / "node-agents"
        folder.mkdir()
        try:
            async with (
                open_stage(folder, NODES, print, lambda _agent, _now: None) as stage,
                served_page(stage) as link,
            ):
                (stage.folder / "agents" / STAGED / "rollout.yaml").write_text(POLICY)
                local_worktree.commit(stage.folder, "Roll out in three stages", AUTHOR)
                await script._every_node(stage)
                await self._stages(stage, link)
                await self._halted(stage, link)
                await self._rejected(stage, link)
                stage.folder.rename(folder / "gone")
                stage.loop.request()
                await asyncio.sleep(30)
                await self._show("unreachable", link)
        finally:
            shutil.rmtree(folder)

    async def _show(self, name: str, link: str) -> None:
        self.moments.put((name, link))
        await asyncio.to_thread(self.taken.get)

    async def _stages(self, stage: DemoStage, link: str) -> None:
        tag = script._tag(stage, STAGED)
        commit = await script._commit(stage, STAGED, (tag, "v5.0.2"), "fluentd 5.0.2")
        await script._agent(stage, STAGED, in_stage("canary", 0), "the canary")
        await self._show("canary", link)
        await script._agent(stage, STAGED, in_stage("rest", 12), "the last stage")
        await self._show("staged", link)
        await script._agent(
            stage,
            STAGED,
            lambda a: script._healthy(a) and a.commit_of(a.history[-1]) == commit,
            "the end",
        )

    async def _halted(self, stage: DemoStage, link: str) -> None:
        tag = script._tag(stage, STAGED)
        await script._commit(stage, STAGED, (tag, "broken"), "fluentd 5.1.0")
        await script._agent(
            stage, STAGED, lambda a: a.rollout is not None and a.rollout.halt is not None, "a halt"
        )
        await asyncio.sleep(5)
        await self._show("halted", link)

    async def _rejected(self, stage: DemoStage, link: str) -> None:
        change = "tolerations:", "tolerationz:"
        await script._commit(stage, script.OTHER, change, "Tolerate all taints")
        await asyncio.sleep(30)
        await self._show("rejected", link)


def in_stage(name: str, proved: int) -> Callable[[Agent], bool]:
    def holds(agent: Agent) -> bool:
        current = agent.rollout.current if agent.rollout else None
        return (
            current is not None
            and current.name == name
            and current.state is StageState.OPEN
            and current.proved >= proved
        )

    return holds


def picture(
    browser: Browser, url: str, file: Path, size: tuple[int, int], theme: str, *, full: bool = False
) -> None:
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if theme == "dark" else "light",
    )
    page = context.new_page()
    page.goto(url)
    if page.locator("body[data-live]").count():
        expect(page.locator("#link")).to_have_text("live")
    page.screenshot(path=file, full_page=full)
    context.close()


def documented(browser: Browser, name: str, link: str) -> None:
    images = ROOT / "docs" / "images"
    if name == "staged":
        picture(browser, link + AGENT, images / "staged.png", (1300, 800), "light")
        picture(browser, link + "wall", images / "wall.png", (1600, 900), "dark")
    if name == "rejected":
        picture(browser, link, images / "overview.png", (1300, 720), "light")
        picture(browser, link + AGENT, images / "phone.png", (390, 844), "light")


def more(browser: Browser, name: str, link: str, folder: Path) -> None:
    for theme in ("light", "dark"):
        picture(browser, link + "wall", folder / f"{name}-wall-{theme}.png", (1920, 1080), theme)
        for screen, size in SCREENS.items():
            for page, path in PAGES.items():
                if page in ("overview", "agent") or (name == "rejected" and theme == "light"):
                    file = folder / f"{name}-{page}-{screen}-{theme}.png"
                    picture(browser, link + path, file, size, theme, full=True)


def main(folder: Path | None) -> None:
    story = Story()
    thread = threading.Thread(target=story.run, daemon=True)
    thread.start()
    with sync_playwright() as playwright:
        browser = chromium.launched(playwright)
        while moment := story.moments.get():
            if folder is None:
                documented(browser, *moment)
            else:
                more(browser, *moment, folder)
            story.taken.put(None)
        browser.close()
    thread.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
