"""The state of a cluster, parsed once, its nodes, and the effect of a change on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from gitops_ds.core.objects import Body, Key


class JoinTime(msgspec.Struct, frozen=True):
    """The seconds from the creation of a node until its agent was available, the median of these
    many nodes.
    """

    seconds: float
    nodes: int


class NodeImpact(msgspec.Struct, frozen=True):
    """Names of nodes on which an agent's pod is added, removed or restarted; each sorted. `waiting`
    are those that wait for the agent from now on if they have a startup taint; `joined` is how long
    nodes that joined would have waited, None if unknown.
    """

    gained: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    joined: JoinTime | None = None


class Taint(msgspec.Struct, frozen=True):
    """A node's taint. https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/"""

    key: str
    effect: str
    value: str = ""

    @property
    def text(self) -> str:
        """`KEY:EFFECT`."""
        return f"{self.key}:{self.effect}"


class Node(msgspec.Struct, frozen=True, weakref=True):
    """The fields of a node for its eligibility and its health.

    `created` and `ready_since`, the last change of the condition Ready, are in seconds since 1970,
    0 if unknown. `boot_id` changes with each boot. `troubles` are its unhealthy conditions:
    `DiskPressure`; `conditions` the types of all its conditions that are true.
    """

    name: str
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    unschedulable: bool = False
    created: float = 0.0
    deleting: bool = False
    troubles: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    ready_since: float = 0.0
    boot_id: str = ""
    uid: str = ""


class Revision(msgspec.Struct, frozen=True):
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
        """Whether it is being deleted; finalizers can delay that."""
        return (self.raw.get("metadata") or {}).get("deletionTimestamp") is not None


class Contents(msgspec.Struct, frozen=True):
    """The objects that the deletion of a Namespace or of a CustomResourceDefinition deletes too,
    without those that another of them owns. `unlisted` are the plural names of kinds that could not
    be listed.
    """

    objects: Mapping[Key, Body] = msgspec.field(default_factory=dict)
    unlisted: tuple[str, ...] = ()


class Live(msgspec.Struct, frozen=True):
    """The state of a cluster for a plan.

    `revisions` are those of each DaemonSet, oldest first; `nodes` are sorted by name, None if they
    were not listed; `unlisted` is the reason if listing is not permitted. `named_config_maps` are
    the ConfigMaps (namespace, name) that pods refer to. `foresee` predicts, for a DaemonSet whose
    pods were listed, the effect of another body on them. `allocatable` is the capacity of nodes for
    pods, in thousandths of a resource's unit, if known. `contents` are those of the listed
    Namespaces and CustomResourceDefinitions. `targets` are the target revisions of each DaemonSet,
    including those that it owns before their rollout is complete. `revision_names` are namespace
    and name of all ControllerRevisions in the namespaces of the DaemonSets. `used_by_pods` are
    the objects that the pods of a DaemonSet use, if they were listed.
    """

    objects: Mapping[Key, Body] = msgspec.field(default_factory=dict)
    revisions: Mapping[Key, tuple[Revision, ...]] = msgspec.field(default_factory=dict)
    nodes: tuple[Node, ...] | None = None
    named_config_maps: frozenset[tuple[str, str]] = frozenset()
    foresee: Mapping[Key, Callable[[Body], NodeImpact]] = msgspec.field(default_factory=dict)
    allocatable: Mapping[str, Mapping[str, int]] = msgspec.field(default_factory=dict)
    contents: Mapping[Key, Contents] = msgspec.field(default_factory=dict)
    unlisted: str = ""
    targets: Mapping[Key, tuple[Revision, ...]] = msgspec.field(default_factory=dict)
    revision_names: frozenset[tuple[str, str]] = frozenset()
    used_by_pods: Mapping[Key, frozenset[Key]] = msgspec.field(default_factory=dict)


class Census(msgspec.Struct, frozen=True):
    """The nodes of a cluster, by name.

    `pools` has the pool of each node in a pool, `room` the capacity of a node for pods (in
    thousandths of a resource's unit) if known, `daemonsets` those of the cluster. `declared`: the
    nodes are those of the pools in the cluster's file, not observed ones, and only the labels with
    `keys` are known.
    """

    nodes: tuple[Node, ...]
    pools: Mapping[str, str] = msgspec.field(default_factory=dict)
    room: Mapping[str, Mapping[str, int]] = msgspec.field(default_factory=dict)
    daemonsets: tuple[Body, ...] = ()
    declared: bool = False
    keys: frozenset[str] = frozenset()
