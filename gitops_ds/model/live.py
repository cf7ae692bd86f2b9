"""What a cluster holds, parsed once from what it sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gitops_ds.model.objects import Body, Key


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint. https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/"""

    key: str
    effect: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """The part of a node that decides whether an agent belongs on it, and whether it is well."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    unschedulable: bool = False


@dataclass(frozen=True, slots=True)
class Revision:
    """A ControllerRevision of a DaemonSet. `template` is its pod template without the `$patch` directive; `raw` the whole object."""

    name: str
    number: int
    hash: str
    template: Body
    raw: Body
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Live:
    """The objects that a plan is made against, the revisions of each DaemonSet (oldest first), and the nodes (sorted by name)."""

    objects: Mapping[Key, Body] = field(default_factory=dict)
    revisions: Mapping[Key, tuple[Revision, ...]] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()
