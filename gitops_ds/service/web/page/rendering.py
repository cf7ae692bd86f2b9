"""Every page as HTML, from one version of the view, and the format of its values. Rendered pages
are cached until the view changes.

A page has live pieces, each between two comments and one element with an id; the stream sends
changed ones. No value can contain such a comment, since all values are escaped.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from importlib import resources
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup

from gitops_ds import __version__
from gitops_ds.core.health import HealthState
from gitops_ds.core.objects import short
from gitops_ds.core.redaction import texts
from gitops_ds.service.web.page import node_map, rows
from gitops_ds.service.web.page.node_map import FleetMap, NodeGroup
from gitops_ds.service.web.page.view import View
from gitops_ds.status.agents import Agent

# A state is never shown only by colour.
GLYPHS: Mapping[str, str] = {
    HealthState.HEALTHY: "✓",
    HealthState.PROGRESSING: "↻",
    HealthState.DEGRADED: "!",
    HealthState.FAILED: "✕",
    HealthState.SUSPENDED: "‖",
    HealthState.MISSING: "?",
    "Proved": "✓",
    "Synced": "✓",
    "OutOfSync": "≠",
    "Held": "‖",
    "Unknown": "?",
    "good": "✓",
    "bad": "✕",
    "warn": "!",
    "plain": "·",
}
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")


def spaced(word: str) -> str:
    """`ImagePullBackOff` as `Image pull back off`; other words unchanged."""
    parts = _HUMP.split(word)
    return " ".join([parts[0], *(part if part.isupper() else part.lower() for part in parts[1:])])


def at(seconds: float) -> str:
    """A moment in UTC, to the second."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


class Asset(msgspec.Struct, frozen=True):
    """A file, plain and with gzip."""

    type: str
    data: bytes
    small: bytes


def _load() -> tuple[Mapping[str, Asset], Mapping[str, str]]:
    assets, paths = {}, {}
    for name in ("page.css", "page.js", "icon.svg"):
        stem, _, ending = name.partition(".")
        data = (resources.files("gitops_ds.service.web.page") / "static" / name).read_bytes()
        path = f"static/{stem}-{hashlib.sha256(data).hexdigest()[:16]}.{ending}"
        assets[path] = Asset(_TYPES[ending], data, gzip.compress(data, 9, mtime=0))
        paths["icon" if ending == "svg" else ending] = path
    return assets, paths


ASSETS, PATHS = _load()


_PIECE = re.compile(r'<!--live-->(<[a-z]+ id="([^"]+)".*?)<!--/live-->', re.DOTALL)
_MARK = re.compile(r"<!--/?live-->")
_KEPT = 32  # cached pages, and cached maps
REFRESH = 15  # seconds between two requests of a browser without scripts


@dataclass(frozen=True)
class Drawn:
    """A page: its HTML, its live pieces by id, and the codes of its map's cells.

    If `shape` is equal, pieces and codes are the whole difference; `words` describe the page for
    screen readers.
    """

    html: bytes
    pieces: Mapping[str, str] = field(default_factory=dict)
    codes: Sequence[str] = ()
    shape: object = None
    words: str = ""

    @cached_property
    def small(self) -> bytes:
        """The HTML with gzip."""
        return gzip.compress(self.html, 4, mtime=0)


@lru_cache(1)
def _jinja() -> jinja2.Environment:
    """The templates, each compiled at its first use."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("gitops_ds.service.web.page", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {"spaced": spaced, "hidden": texts.words}
    environment.globals |= {
        "glyphs": GLYPHS,
        "short": short,
        "at": at,
        "cells": cells,
        "squares": squares,
        "node_names": node_names,
        "files": PATHS,
        "version": __version__,
        "states": tuple(node_map.STATES.items()),
        "words_of": node_map.STATES,
    }
    return environment


class Pages:
    """Renders the pages of one view."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._maps: OrderedDict[object, tuple[Agent, object, FleetMap]] = OrderedDict()
        self._places: tuple[object, object, Mapping[str, tuple[str, str]]] = (None, (), {})

    def map_of(self, agent: Agent) -> FleetMap:
        """The agent's map, rendered once for each observation."""
        kept, places = self._maps.get(agent.key), self.places_of(agent)
        if kept is None or kept[0] is not agent or kept[1] is not places:
            kept = self._maps[agent.key] = (agent, places, node_map.draw(agent, places))
        self._maps.move_to_end(agent.key)
        while len(self._maps) > _KEPT:
            self._maps.popitem(last=False)
        return kept[2]

    def places_of(self, agent: Agent) -> Mapping[str, tuple[str, str]]:
        """Pool and zone of the nodes, cached for all agents until a node or the pools change."""
        nodes, pools = agent.seen.nodes, tuple(self.view.pools())
        if self._places[0] is not nodes or self._places[1] != pools:
            self._places = (nodes, pools, node_map.places(nodes, pools))
        return self._places[2]

    def draw(self, template: str, root: str, values: Mapping[str, Any]) -> Drawn:
        """The page of a template."""
        context: dict[str, Any] = {
            "root": root,
            "cluster": self.view.cluster,
            "tab": "",
            "has_clusters": bool(self.view.clusters()),
            "live": "",
            "refresh": 0,
            **values,
        }
        context.setdefault("may_leave", False)
        # Only pages for authorized users are live.
        shown = self.view.sources() if context["live"] else ()
        context["unread"] = self.view.unread if context["live"] else ""
        context["troubles"] = [source for source in map(rows.source, shown) if source.is_trouble]
        context.setdefault("filters", {})
        context["parts"] = _jinja().get_template("parts.html").make_module(context)
        text = _jinja().get_template(template).render(context)
        pieces = {match[2]: match[1] for match in _PIECE.finditer(text)}
        html, words = _MARK.sub("", text).encode(), str(values.get("words", ""))
        fleet_map = values.get("map")
        if not isinstance(fleet_map, FleetMap):
            return Drawn(html, pieces, (), frozenset(pieces), words)
        places = tuple(
            (group.pool, group.zone, tuple(cell.node for cell in group.cells))
            for group in fleet_map.groups
        )
        return Drawn(html, pieces, fleet_map.codes, (tuple(pieces), places), words)


def cells(group: NodeGroup) -> Markup:
    """The squares of a group. A page has 5,000 of them, so healthy ones have no attributes."""
    return Markup("".join(map(_square, (cell.code for cell in group.cells))))  # noqa: S704  the codes are our own letters


def node_names(group: NodeGroup) -> str:
    """The names of a group's nodes in one text, which is escaped as a whole."""
    return " ".join([cell.node for cell in group.cells])


def _square(code: str) -> str:
    return (
        f'<i class="{code}"></i>' if " " in code else f"<i class={code}></i>" if code else "<i></i>"
    )


_STEP, _SIDE = 10, 7  # the distance of squares, and the side of a square without its border
_SIGNS = {"x": "✕", "w": "!", "p": "↻", "u": "u"}


def squares(codes: Sequence[str], shape: float) -> Markup:
    """A drawing of the codes of a map in an area of that shape, width by height; empty without
    codes.
    """
    if not codes:
        return Markup()
    columns = _columns(len(codes), shape)
    rows = max(2, math.ceil(len(codes) / columns))
    places: dict[str, list[tuple[int, int]]] = {}
    for number, code in enumerate(codes):
        state = " ".join(class_name for class_name in code.split() if class_name[0] != "r")
        place = number % columns * _STEP, number // columns * _STEP
        places.setdefault(state, []).append(place)
    drawn = "".join("".join(_drawn(state, at)) for state, at in sorted(places.items()))
    return Markup(  # noqa: S704  the codes are our own letters
        f'<svg class="squares" viewBox="0 0 {columns * _STEP} {rows * _STEP}" '
        f'preserveAspectRatio="xMinYMin meet" aria-hidden="true">{drawn}</svg>'
    )


def _columns(count: int, shape: float) -> int:
    """The columns with the largest squares; of several, those with the fewest empty places."""

    def cost(columns: int) -> tuple[float, int]:
        rows = math.ceil(count / columns)
        return max(columns / shape, rows), columns * rows - count

    near = max(6, round(math.sqrt(count * shape)))
    return min(range(max(6, near // 2), near * 2), key=cost)


def _drawn(state: str, places: Sequence[tuple[int, int]]) -> Iterator[str]:
    """The squares of one state as one path, and their signs as one text."""
    name = f' class="{state}"' if state else ""
    path = "".join(f"M{x + 1} {y + 1}h{_SIDE}v{_SIDE}h-{_SIDE}z" for x, y in places)
    yield f'<path{name} d="{path}"/>'
    letters = state.split()
    sign = next((_SIGNS[letter] for letter in letters if letter in _SIGNS), "")
    if sign := sign or next((letter.upper() for letter in letters if letter in "bcdefg"), ""):
        kind = ' class="on"' if "x" in letters else ' class="way"' if "p" in letters else ""
        across = " ".join(f"{x + 4.5:g}" for x, _ in places)
        down = " ".join(str(y + 7) for _, y in places)
        yield f'<text{kind} x="{across}" y="{down}">{sign * len(places)}</text>'
