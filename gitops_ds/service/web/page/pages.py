"""All pages by their path, for requests and streams. A page is rendered once for each version of
the view.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec

from gitops_ds.core import duration, errors
from gitops_ds.core.redaction import texts
from gitops_ds.service.web.page import overview, rendering, view_models
from gitops_ds.service.web.page.rendering import Drawn, Pages
from gitops_ds.service.web.page.view import View
from gitops_ds.status.agents import Agent
from gitops_ds.status.cluster_reports import ClusterRow

_LINKS = ("https://", "http://")


class ShownCluster(msgspec.Struct, frozen=True):
    """One line. `url` is the page of the cluster, empty without a link that a browser may open."""

    name: str
    wave: int
    after: str
    state: str
    commit: str
    newest: str
    agents: str
    since: float
    reported: float
    message: str
    url: str


def contents(view: View) -> Mapping[str, Any]:
    """The values of the template."""
    return {"tab": "Clusters", "rows": [_shown(cluster) for cluster in view.clusters()]}


def _shown(row: ClusterRow) -> ShownCluster:
    report, order = row.report, row.order
    soak = f", soak {duration.text(order.soak)}" if order.soak else ""
    url = report.url if report else ""
    return ShownCluster(
        row.name,
        order.wave,
        f"{', '.join(order.after)}{soak}",
        row.state,
        report.applied if report else "",
        report.newest if report else "",
        row.agents(),
        report.since if report else 0.0,
        report.at if report else 0.0,
        texts.words(row.message),
        url if url.startswith(_LINKS) else "",
    )


_KEPT = 32


class Book:
    """The pages of one view; `may_leave` if users sign in here."""

    def __init__(self, view: View, *, may_leave: bool = False) -> None:
        self.view, self._may_leave = view, may_leave
        self._pages = Pages(view)
        self._drawn: OrderedDict[tuple[str, tuple[tuple[str, str], ...]], tuple[int, Drawn]] = (
            OrderedDict()
        )
        self._drawing, self._rests_until = asyncio.Lock(), 0.0
        self._epoch = secrets.token_hex(4)  # other processes count versions separately

    def token(self, version: int) -> str:
        """Identifies a version of this process, for a stream that continues from a page."""
        return f"{self._epoch}-{version}"

    async def page(self, path: str, parameters: Mapping[str, str]) -> Drawn:
        """The page at a path without its first slash. Raises NoMatch."""
        name = (path, tuple(sorted(parameters.items())))
        if (kept := self._kept(name)) is not None:
            return kept
        clock = asyncio.get_running_loop().time
        async with self._drawing:
            # A page of 5,000 nodes takes a quarter of a second. Viewers leave at least half of the
            # time to the reconciliation, however many pages they open.
            await asyncio.sleep(self._rests_until - clock())
            if (kept := self._kept(name)) is not None:
                return kept
            began = clock()
            try:
                version, drawn = self.view.version, await self._draw(path, parameters)
            finally:
                self._rests_until = clock() + (clock() - began)
        self._drawn[name] = (version, drawn)
        self._drawn.move_to_end(name)
        while len(self._drawn) > _KEPT:
            self._drawn.popitem(last=False)
        return drawn

    def _kept(self, name: tuple[str, tuple[tuple[str, str], ...]]) -> Drawn | None:
        version, drawn = self._drawn.get(name, (None, None))
        if version != self.view.version:
            return None
        self._drawn.move_to_end(name)
        return drawn

    async def _draw(self, path: str, parameters: Mapping[str, str]) -> Drawn:
        token = self.token(self.view.version)
        template, contents = await self._contents(path, parameters)
        query = "?" + urlencode(parameters) if parameters else ""
        live = f"{root_of(path)}live?" + urlencode({"of": path + query, "since": token})
        values = {
            "live": live,
            "refresh": rendering.REFRESH,
            "may_leave": self._may_leave,
            **contents,
        }
        return self._pages.draw(template, root_of(path), values)

    def plain(self, template: str, values: Mapping[str, Any], path: str = "") -> Drawn:
        """A page without live updates: sign-in, an error."""
        return self._pages.draw(template, root_of(path), values)

    async def _contents(
        self, path: str, parameters: Mapping[str, str]
    ) -> tuple[str, dict[str, Any]]:
        match path.split("/"):
            case [""]:
                return "overview.html", overview.overview(self.view, parameters)
            case ["wall"]:
                return "wall.html", overview.wall(self.view, self._pages)
            case ["agents", namespace, name]:
                return "agent.html", await view_models.agent(
                    self.view, self._pages, self._agent(namespace, name)
                )
            case ["agents", namespace, name, "nodes"]:
                agent = self._agent(namespace, name)
                return "agent_nodes.html", view_models.agent_nodes(self._pages, agent, parameters)
            case ["nodes"]:
                return "nodes.html", view_models.nodes(self.view, parameters)
            case ["nodes", name]:
                return "node.html", view_models.node(self.view, name)
            case ["commits", *parts] if parts:
                return "commit.html", await view_models.commit(self.view, "/".join(parts))
            case ["clusters"]:
                return "clusters.html", dict(contents(self.view))
            case ["events"]:
                return "events.html", view_models.events(self.view, parameters)
            case _:
                raise errors.NoMatch(f"no page at /{path[:80]}")

    def _agent(self, namespace: str, name: str) -> Agent:
        for agent in self.view.agents():
            if (agent.key.namespace, agent.key.name) == (namespace, name):
                return agent
        if unread := self.view.unread:
            raise errors.NoMatch(f"the cluster is not read yet: {unread}")
        raise errors.NoMatch(f"DaemonSet {namespace}/{name} not found in this cluster")


def root_of(path: str) -> str:
    """The relative path from a page to the first one: a proxy may serve them below a path."""
    return "../" * path.count("/")
