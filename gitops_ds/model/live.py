"""What a cluster holds, parsed once from what it sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gitops_ds.model.impact import NodeImpact
from gitops_ds.model.objects import Body, Key


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint. https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/"""

    key: str
    effect: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """The part of a node that decides whether an agent belongs on it, and whether it is well.

    `created` is in seconds since 1970, 0 where nobody said. `troubles` are its conditions that
    should not be: `DiskPressure`.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    unschedulable: bool = False
    created: float = 0.0
    deleting: bool = False
    troubles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Revision:
    """A ControllerRevision of a DaemonSet: its pod template without the `$patch` directive, and the
    whole object as `raw`.
    """

    name: str
    number: int
    hash: str
    template: Body
    raw: Body
    uid: str = ""

    @property
    def deleting(self) -> bool:
        """Whether it is being deleted; a finalizer may hold it for long."""
        return (self.raw.get("metadata") or {}).get("deletionTimestamp") is not None


@dataclass(frozen=True, slots=True)
class Contents:
    """The objects that the deletion of a Namespace or of a CustomResourceDefinition takes along,
    without those that another of them owns. `unlisted` are the plural names of kinds that could not
    be listed.
    """

    objects: Mapping[Key, Body] = field(default_factory=dict)
    unlisted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Live:
    """What a plan is made against.

    `revisions` are those of each DaemonSet, oldest first; `nodes` are sorted by name, None where
    nobody looked or, for the reason `unlisted`, nobody may. `named_config_maps` are the ConfigMaps
    (namespace, name) that pods name. `foresee` says, for a DaemonSet whose pods were listed, what
    becomes of them with another body. `allocatable` is what nodes have for pods, in thousandths of
    a resource's unit, where known. `contents` are those of Namespaces and
    CustomResourceDefinitions, where they were listed.
    """

    objects: Mapping[Key, Body] = field(default_factory=dict)
    revisions: Mapping[Key, tuple[Revision, ...]] = field(default_factory=dict)
    nodes: tuple[Node, ...] | None = None
    named_config_maps: frozenset[tuple[str, str]] = frozenset()
    foresee: Mapping[Key, Callable[[Body], NodeImpact]] = field(default_factory=dict)
    allocatable: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    contents: Mapping[Key, Contents] = field(default_factory=dict)
    unlisted: str = ""
