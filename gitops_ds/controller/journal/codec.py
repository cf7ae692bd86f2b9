"""A reconciliation as one line of JSON, and back. Pure.

A line has the changes since the last line of the same DaemonSet in the same file, and for nodes
since the last line; so the first line is complete, and every file can be read by itself. Objects of
the API server (`raw`) are stored, and parsed again by the reading version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from gitops_ds import __version__
from gitops_ds.apimachinery import daemonsets, revisions
from gitops_ds.controller.journal import delta, staged_codec
from gitops_ds.controller.journal.delta import JsonTree, TreeDelta
from gitops_ds.model import decision as model
from gitops_ds.model import names
from gitops_ds.model.daemonset import Pod
from gitops_ds.model.decision import (
    Action,
    Decision,
    FailedPodBackoff,
    FreeCapacity,
    Observation,
    StatusUpdate,
)
from gitops_ds.model.events.base import Decided
from gitops_ds.model.live import Node, Revision
from gitops_ds.model.objects import Body, Key

KIND = "Journal"
_ACTIONS: dict[str, type[Action]] = {action.__name__: action for action in get_args(Action)}
_encode = msgspec.json.Encoder().encode


class Broken(ValueError):
    """A line that is invalid, or depends on a missing one."""


class _Line(msgspec.Struct):
    at: float
    object: Key
    performed: bool
    seen: TreeDelta
    decided: dict[str, Any]


_line = msgspec.json.Decoder(_Line).decode


def head() -> bytes:
    """The first line of a file: its kind, and the version of the program."""
    return _encode({"apiVersion": names.API_VERSION, "kind": KIND, "version": __version__}) + b"\n"


def is_head(line: bytes) -> bool:
    """Whether a file with this first line is a journal."""
    try:
        header = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return False
    return isinstance(header, dict) and (header.get("apiVersion"), header.get("kind")) == (
        names.API_VERSION,
        KIND,
    )


class JournalWriter:
    """Encodes the lines of one file. It references the objects of the last lines, which are those
    of the cache.
    """

    def __init__(self) -> None:
        self._last: dict[Key, JsonTree] = {}
        self._nodes: JsonTree = {}
        self._node_list: tuple[Node, ...] = ()

    def line(self, event: Decided) -> tuple[bytes, bool]:
        """The line, and whether it is the DaemonSet's first, and therefore complete, one."""
        seen, nodes = event.seen, self._nodes
        if seen.nodes is not self._node_list:
            nodes = {node.name: node for node in seen.nodes}
        last = self._last.get(event.daemonset)
        tree = {**_tree(seen, nodes), "staged": staged_codec.tree(event.staged)}
        change = delta.between({**(last or _EMPTY), "nodes": self._nodes}, tree)
        self._last[event.daemonset], self._nodes, self._node_list = tree, nodes, seen.nodes
        decided = encoded(event.decision)
        if event.staged is not None:
            decided["stages"] = event.staged.outcome
        line = _Line(event.at, event.daemonset, event.performed, change, decided)
        return _encode(line) + b"\n", last is None


class Reader:
    """Reads the lines of one file, in order."""

    def __init__(self) -> None:
        self._last: dict[Key, JsonTree] = {}
        self._nodes: JsonTree = {}

    def turn(self, line: bytes) -> Decided:
        """The decision and its observation. Raises Broken."""
        try:
            read = _line(line)
            tree = delta.applied(
                {**self._last.get(read.object, _EMPTY), "nodes": self._nodes}, _parsed(read.seen)
            )
            staged = staged_codec.turn(tree.get("staged") or {}, read.decided.get("stages"))
            decision, seen = decoded(read.decided), _observation(tree)
            turn = Decided(read.at, read.object, decision, read.performed, seen, staged)
        except (msgspec.MsgspecError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise Broken(f"{type(error).__name__}: {error}") from error
        self._last[read.object], self._nodes = tree, tree["nodes"]
        return turn


_EMPTY: JsonTree = {
    "daemonset": {},
    "nodes": {},
    "pods": {},
    "revisions": {},
    "backoffs": {},
    "vanished": {},
    "rooms": {},
    "staged": {},
}


def _tree(seen: Observation, nodes: JsonTree) -> JsonTree:
    return {
        "now": seen.now,
        "daemonset": seen.daemonset.raw,
        "nodes": nodes,
        "pods": {pod.uid: pod for pod in seen.pods},
        "revisions": {revision.uid: revision.raw for revision in seen.revisions},
        "backoffs": seen.backoffs,
        "vanished": seen.vanished,
        "direct": seen.rooms is not None,
        "rooms": seen.rooms or {},
        "own_node": seen.own_node,
        "namesake": None if seen.namesake is None else seen.namesake.raw,
        "unshown": seen.unshown,
    }


_PARSED: dict[str, type] = {
    "nodes": Node,
    "pods": Pod,
    "backoffs": FailedPodBackoff,
    "rooms": FreeCapacity,
}


def _parsed(change: TreeDelta) -> TreeDelta:
    """The difference with parsed nodes, pods and back-offs."""
    below = dict(change.get("in", {}))
    for group, type in _PARSED.items():
        if put := below.get(group, {}).get("put"):
            below[group] = {
                **below[group],
                "put": {key: msgspec.convert(value, type) for key, value in put.items()},
            }
    return {**change, "in": below}


def _observation(tree: JsonTree) -> Observation:
    return Observation(
        now=float(tree["now"]),
        daemonset=daemonsets.daemonset_of(tree["daemonset"]),
        nodes=tuple(sorted(tree["nodes"].values(), key=lambda node: node.name)),
        pods=tuple(sorted(tree["pods"].values(), key=lambda pod: pod.name)),
        revisions=tuple(
            sorted(
                map(_revision, tree["revisions"].values()),
                key=lambda revision: (revision.number, revision.name),
            )
        ),
        backoffs=tree["backoffs"],
        vanished=tree["vanished"],
        rooms=tree["rooms"] if tree.get("direct") else None,
        own_node=str(tree.get("own_node", "")),
        namesake=_revision(tree["namesake"]) if tree.get("namesake") else None,
        unshown=int(tree.get("unshown", 0)),
    )


def _revision(raw: Body) -> Revision:
    revision = revisions.revision_of(raw)
    if revision is None:
        raise Broken("a revision without a pod template")
    return revision


def encoded(decision: Decision) -> dict[str, Any]:
    """The decision as plain data; the bodies of new pods, except the first, as the difference to
    that one.
    """
    first: list[Body] = []
    return {
        "steps": [[_action(action, first) for action in step] for step in decision.steps],
        "status": decision.status,
        "wakeAfter": decision.wake_after,
        "backoffs": decision.backoffs,
        "complaint": decision.complaint,
        "unplaced": decision.unplaced,
    }


def _action(action: Action, first: list[Body]) -> dict[str, Any]:
    data = {
        "do": type(action).__name__,
        **msgspec.structs.asdict(action),
    }
    if isinstance(action, model.CreatePod):
        data["body"] = delta.between(first[0] if first else {}, action.body)
        first.append(action.body)
    return data


def decoded(data: Mapping[str, Any]) -> Decision:
    """The decision from plain data. Raises the errors of msgspec and of mappings."""
    first: list[Body] = []
    return Decision(
        steps=tuple(tuple(_action_of(action, first) for action in step) for step in data["steps"]),
        status=msgspec.convert(data["status"], StatusUpdate | None),
        wake_after=msgspec.convert(data["wakeAfter"], float | None),
        backoffs=msgspec.convert(data["backoffs"], dict[str, FailedPodBackoff]),
        complaint=str(data["complaint"]),
        unplaced=msgspec.convert(data.get("unplaced", {}), dict[str, str]),
    )


def _action_of(data: dict[str, Any], first: list[Body]) -> Action:
    kind = _ACTIONS[data["do"]]
    if kind is model.CreatePod:
        data = {**data, "body": delta.applied(first[0] if first else {}, data["body"])}
        first.append(data["body"])
    return msgspec.convert(data, kind)
