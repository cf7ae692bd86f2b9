"""The map of one agent: commit, state and reason of each node, by pool and zone, compact enough for
5,000 nodes. Pure.

A node's `code` is the class of its cell: a letter for the state (none: well and up to date), then a
letter for the commit, `a` the wanted one, then the number of the reason. Cells have no text; each
group has the names of its nodes once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from gitops_ds.core.daemonset import Pod
from gitops_ds.core.health import Blame, NodeHealth
from gitops_ds.core.live import Node, Revision
from gitops_ds.core.sources.bundle import Pool
from gitops_ds.daemonset import decide
from gitops_ds.daemonset.node_pods import NodePods
from gitops_ds.kube.apimachinery import node_pools as pooling
from gitops_ds.status.agents import Agent

_ZONES = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
SHADES = "abcdefg"  # commits with a separate colour; the others share the last one

# State letters, their words, in the order of the legend.
STATES: Mapping[str, str] = {
    "": "up to date and available",
    "o": "an earlier revision, available",
    "p": "starting",
    "x": "broken: the template is the cause",
    "w": "broken: the node is the cause",
    "u": "runs on an ineligible node",
    "n": "node is not eligible",
}


class Cell(msgspec.Struct, frozen=True, gc=False):
    """A node of the map. `revision` is that of its pod."""

    node: str
    code: str
    state: str
    reason: str = ""
    blame: str = ""
    message: str = ""
    pod: str = ""
    revision: Revision | None = None


class NodeGroup(msgspec.Struct, frozen=True):
    """The nodes of one pool in one zone; `states` counts them by state."""

    pool: str
    zone: str
    cells: tuple[Cell, ...]
    states: Mapping[str, int]

    @property
    def meant(self) -> int:
        """The number of nodes that should run the agent."""
        return len(self.cells) - self.states.get("n", 0)

    @property
    def well(self) -> int:
        """The number of nodes with an available pod of the wanted revision."""
        return self.states.get("", 0)


class Shade(msgspec.Struct, frozen=True):
    """One entry of the legend: a commit (or a revision without one), its letter, and its number of
    nodes.
    """

    letter: str
    commit: str
    number: int
    nodes: int
    wanted: bool


class FleetMap(msgspec.Struct, frozen=True):
    """The map; `states` counts the nodes in each state, `reasons` are the reasons in the order of
    the numbers in codes.
    """

    groups: tuple[NodeGroup, ...]
    shades: tuple[Shade, ...]
    states: Mapping[str, int]
    reasons: tuple[str, ...]
    troubles: tuple[tuple[str, str, tuple[Cell, ...]], ...] = ()
    by_node: Mapping[str, Cell] = msgspec.field(default_factory=dict)

    @property
    def codes(self) -> list[str]:
        """The codes of all cells, in the order of the page."""
        return [cell.code for group in self.groups for cell in group.cells]


def zone_of(node: Node) -> str:
    """The node's zone, empty without the label."""
    return next((node.labels[label] for label in _ZONES if node.labels.get(label)), "")


def places(nodes: Sequence[Node], pools: Sequence[Pool]) -> Mapping[str, tuple[str, str]]:
    """Pool and zone of every node, by its name."""
    return {node.name: (pooling.pool_of(node, pools), zone_of(node)) for node in nodes}


def draw(agent: Agent, where: Mapping[str, tuple[str, str]]) -> FleetMap:
    """The agent's map; `where` is the result of `places`.

    Groups are sorted by pool and zone, those without the agent last; nodes by name.
    """
    layout = decide.layout(agent.seen)
    target = agent.rollout.target if agent.rollout is not None else None

    def updated(pod: Pod) -> bool:
        return layout.updated(pod) if target is None else pod.hash == target.hash

    pods = [_shown(node_pods, updated) for node_pods in layout.nodes]
    shades, legend = _legend(
        agent,
        layout.hash if target is None else target.hash,
        Counter(pod.hash for pod in pods if pod is not None and not pod.terminating),
    )
    troubles = {trouble.node: trouble for trouble in agent.health.nodes}
    grouped: dict[tuple[str, str], list[Cell]] = {}
    for node_pods, pod in zip(layout.nodes, pods, strict=True):
        place = where.get(node_pods.node)
        if place is not None or pod is not None:  # a deleted node may still have a pod
            trouble = troubles.get(node_pods.node)
            cell = _cell(
                node_pods.node, _state(node_pods, pod, trouble, updated), pod, trouble, legend
            )
            grouped.setdefault(place or ("", ""), []).append(cell)
    drawn = (
        NodeGroup(*place, tuple(cells), Counter([cell.state for cell in cells]))
        for place, cells in sorted(grouped.items())
    )
    groups = tuple(sorted(drawn, key=lambda group: not group.meant))
    all_cells = [cell for group in groups for cell in group.cells]
    states = sum((Counter(group.states) for group in groups), Counter[str]())
    return FleetMap(
        groups,
        shades,
        states,
        legend.reasons,
        _troubles(all_cells),
        {cell.node: cell for cell in all_cells},
    )


class _Legend(msgspec.Struct, frozen=True):
    """The meaning of codes: revision and letter by a pod's hash, the reasons in the order of their
    numbers.
    """

    revisions: Mapping[str, tuple[Revision, str]]
    reasons: tuple[str, ...]


def _legend(
    agent: Agent, current_hash: str, running: Mapping[str, int]
) -> tuple[tuple[Shade, ...], _Legend]:
    """The wanted revision first, then the others that run, newest first; `running` counts the nodes
    of each hash.
    """
    by_hash = {revision.hash: revision for revision in agent.history}
    if (target := agent.target) is not None:
        by_hash[target.hash] = target
    current = by_hash.get(current_hash) or agent.current
    others = [
        by_hash[hash]
        for hash in running
        if hash in by_hash and (current is None or hash != current.hash)
    ]
    in_order = [
        *([current] if current else []),
        *sorted(others, key=lambda revision: -revision.number),
    ]
    letters = SHADES[0 if current else 1 :]
    shades = tuple(
        Shade(
            letters[min(place, len(letters) - 1)],
            agent.commit_of(one),
            one.number,
            running.get(one.hash, 0),
            one is current,
        )
        for place, one in enumerate(in_order)
    )
    letter_of = {shade.number: shade.letter for shade in shades}
    revisions = {
        hash: (one, letter_of.get(one.number, SHADES[-1])) for hash, one in by_hash.items()
    }
    return shades, _Legend(
        revisions, tuple(sorted({trouble.reason for trouble in agent.health.nodes}))
    )


def _shown(node_pods: NodePods, updated: Callable[[Pod], bool]) -> Pod | None:
    """The pod that represents the node: preferably one that stays and runs the wanted revision."""
    if len(node_pods.pods) < 2:
        return node_pods.pods[0] if node_pods.pods else None
    staying = node_pods.staying
    return next((pod for pod in staying if updated(pod)), (staying or node_pods.pods)[0])


def _state(
    node_pods: NodePods,
    pod: Pod | None,
    trouble: NodeHealth | None,
    updated: Callable[[Pod], bool],
) -> str:
    if not node_pods.wanted:
        return "u" if pod is not None else "n"
    if trouble is None:
        return "" if pod is not None and updated(pod) else "o"
    if trouble.reason == "Outdated":
        return "o"
    if trouble.reason in ("NoPod", "Starting", "Terminating", "Joining"):
        return "p"
    return "x" if trouble.blame is Blame.TEMPLATE else "w"


def _cell(
    name: str, state: str, pod: Pod | None, trouble: NodeHealth | None, legend: _Legend
) -> Cell:
    revision, letter = legend.revisions.get(pod.hash, (None, "")) if pod is not None else (None, "")
    if not state and letter == SHADES[0]:
        letter = ""
    code = f"{state} {letter}" if state and letter else state or letter
    if trouble is None:
        return Cell(name, code, state, "", "", "", pod.name if pod is not None else "", revision)
    code = f"{code} r{legend.reasons.index(trouble.reason)}".lstrip()
    return Cell(
        name,
        code,
        state,
        trouble.reason,
        trouble.blame.value,
        trouble.message,
        pod.name if pod is not None else "",
        revision,
    )


def _troubles(cells: Sequence[Cell]) -> tuple[tuple[str, str, tuple[Cell, ...]], ...]:
    """The unhealthy nodes by reason and blame: broken ones first, then the most frequent."""
    by_reason: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        if cell.reason or cell.state in ("o", "u"):
            reason = cell.reason or ("Outdated" if cell.state == "o" else "NotMeant")
            by_reason.setdefault((reason, cell.blame), []).append(cell)
    rank = {"x": 0, "w": 1, "u": 2, "p": 3, "o": 4}
    ordered = sorted(
        by_reason.items(), key=lambda item: (rank.get(item[1][0].state, 5), -len(item[1]), item[0])
    )
    return tuple((reason, blame, tuple(some)) for (reason, blame), some in ordered)
