"""The values of the overview and of its large form for a wall. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gitops_ds.core.health import HealthState
from gitops_ds.core.redaction import texts
from gitops_ds.service.web.page.node_map import FleetMap
from gitops_ds.service.web.page.rendering import Pages
from gitops_ds.service.web.page.rows import AgentRow, SourceRow, row, source
from gitops_ds.service.web.page.view import View

# The order in which states need attention.
_URGENCY = (
    HealthState.FAILED,
    HealthState.DEGRADED,
    HealthState.MISSING,
    HealthState.PROGRESSING,
    HealthState.SUSPENDED,
    HealthState.HEALTHY,
)
SORTS: Mapping[str, Any] = {
    "name": lambda row: (row.key.name, row.key.namespace),
    "namespace": lambda row: (row.key.namespace, row.key.name),
    "health": lambda row: (_URGENCY.index(row.health.state), row.key.name),
    "sync": lambda row: (row.sync, row.key.name),
    "desired": lambda row: row.counts.desired,
    "ready": lambda row: row.counts.ready,
    "updated": lambda row: row.counts.updated,
    "revision": lambda row: row.revision,
    "commit": lambda row: (row.commit, row.key.name),
}
_SQUARES = 4000  # on a wall: with more nodes only the bars are shown
_SHAPE = 1.4  # columns for each row of tiles on a wide screen


class AgentSection(msgspec.Struct, frozen=True):
    """The agents of one repository, or those of none. `title` is empty for the only section."""

    source: SourceRow | None
    title: str
    rows: Sequence[AgentRow]


def overview(view: View, parameters: Mapping[str, str]) -> dict[str, Any]:
    """All agents by repository, failing ones first."""
    everything = [row(agent) for agent in view.agents()]
    query, only = parameters.get("q", ""), parameters.get("health", "")
    sort, down = parameters.get("sort", "health"), parameters.get("down") == "1"
    sort = sort if sort in SORTS else "health"
    shown = [
        agent_row
        for agent_row in everything
        if only in ("", agent_row.health.state) and _meets(agent_row, query)
    ]
    shown.sort(key=SORTS[sort], reverse=down)
    return {
        "tab": "Agents",
        "sections": _sections(shown, [source(status) for status in view.sources()]),
        "shown": len(shown),
        "query": query,
        "only": only,
        "sort": sort,
        "down": down,
        **_counts(everything),
    }


def _counts(everything: Sequence[AgentRow]) -> dict[str, Any]:
    states = Counter(agent_row.health.state for agent_row in everything)
    counts = [(state, states[state]) for state in _URGENCY]
    words = ", ".join(f"{count} {state}" for state, count in counts if count)
    return {"total": len(everything), "counts": counts, "words": words}


def _sections(rows: Sequence[AgentRow], sources: Sequence[SourceRow]) -> list[AgentSection]:
    """A section for each repository, failing ones first, then one for the other agents."""
    ranked = sorted(sources, key=lambda one: not one.is_trouble)
    sections = [
        AgentSection(place, place.repository, [row for row in rows if row.source == place.id])
        for place in ranked
    ]
    ids = {place.id for place in sources}
    if others := [row for row in rows if row.source not in ids]:
        sections.append(
            AgentSection(None, "Not from a followed repository" if sources else "", others)
        )
    return sections


def _meets(one: AgentRow, query: str) -> bool:
    text = one.words.lower()
    return all(word in text for word in query.lower().split())


class Tile(msgspec.Struct, frozen=True):
    """One agent on a wall. `hold` and `halt` are sentences, empty if they do not apply; `codes` are
    those of its nodes on the map, none if they are too many, and `shape` is that of their area,
    width by height.
    """

    row: AgentRow
    hold: str
    halt: str
    codes: Sequence[str]
    shape: float

    @property
    def id(self) -> str:
        """The ID of its element."""
        return f"w{self.row.id}"


def wall(view: View, pages: Pages) -> dict[str, Any]:
    """The overview for a wall: a tile for each agent, failing ones first."""
    agents = {agent.key: agent for agent in view.agents()}
    rows = sorted(map(row, agents.values()), key=SORTS["health"])
    room = sum(agent_row.counts.desired for agent_row in rows) <= _SQUARES
    columns = _columns(len(rows))
    tiles = []
    for agent_row in rows:
        agent = agents[agent_row.key]
        halt, hold = agent.rollout.halt if agent.rollout else None, agent.hold
        tiles.append(
            Tile(
                agent_row,
                texts.words(hold.text) if hold is not None and halt is None else "",
                texts.words(f"stage {halt.stage}: {halt.message}") if halt is not None else "",
                _codes(pages.map_of(agent)) if room else (),
                _shape(columns, math.ceil(len(rows) / columns), _lines(agent_row)),
            )
        )
    return {
        "tab": "Wall",
        "tiles": tiles,
        "columns": columns,
        "sources": [source(status) for status in view.sources()],
        **_counts(rows),
    }


def _columns(tiles: int) -> int:
    """The number of columns for that many tiles: similar to the shape of a screen, with few empty
    places.
    """

    def cost(columns: int) -> float:
        rows = math.ceil(tiles / columns)
        empty = columns * rows - tiles
        return 3 * empty / tiles + abs(math.log(columns / rows / _SHAPE))

    return min(range(1, 9), key=cost) if tiles else 1


def _lines(one: AgentRow) -> int:
    """The lines of text in a tile."""
    return 2 * bool(one.stage or one.timing) + 2 * bool(one.note)


def _shape(columns: int, rows: int, lines: int) -> float:
    """The shape of the part of a tile below its head and that many lines of text, in hundredths of
    a screen of 178 by 100.
    """
    return (170 / columns) / max(6, 82 / rows - 12 - 4 * lines)


def _codes(drawn: FleetMap) -> Sequence[str]:
    """The codes of the nodes that run or should run the agent."""
    return [cell.code for group in drawn.groups for cell in group.cells if cell.state != "n"]
