"""One turn of the controller core: everything it saw, and everything it wants done about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from gitops_ds.model.daemonset import Counts, DaemonSet, Pod
from gitops_ds.model.live import Node, Revision
from gitops_ds.model.objects import Body, Key


@dataclass(frozen=True, slots=True)
class FailedPodBackoff:
    """How long to leave a node alone after a pod failed there: `delay` seconds from `since`."""

    since: float
    delay: float

    @property
    def until(self) -> float:
        """When the next failed pod may be deleted."""
        return self.since + self.delay


class FreeCapacity(msgspec.Struct, frozen=True):
    """What a node has left: amounts by resource, in thousandths of its unit, and the host ports
    that are taken.

    `free` holds the resources that the node names; a port is a protocol, a host IP and a number.
    """

    free: Mapping[str, int]
    ports: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Observation:
    """The whole input of a turn, looked at once.

    `pods` and `revisions` are those that name the DaemonSet's UID as their controller, whatever
    their labels, and the orphans of
    its namespace that its selector matches; pods sorted by name, revisions by number and name,
    `nodes` by name. `backoffs` are
    those of failed pods, by node. `vanished` holds by node the UID of the last pod seen to vanish
    there. `now` is in seconds since
    1970. `rooms` is None where the scheduler places the pods; else we do, and it holds what each
          node has left. `own_node` is where
    we run ourselves, where that is known: it comes last in a rollout. `namesake` is a revision that
    is not among `revisions` and
    has the name that one of this template gets. `unshown` is how many pods we created that the
    watch has not shown yet.
    """

    now: float
    daemonset: DaemonSet
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...] = ()
    revisions: tuple[Revision, ...] = ()
    backoffs: Mapping[str, FailedPodBackoff] = field(default_factory=dict)
    vanished: Mapping[str, str] = field(default_factory=dict)
    rooms: Mapping[str, FreeCapacity] | None = None
    own_node: str = ""
    namesake: Revision | None = None
    unshown: int = 0


class DeleteCause(StrEnum):
    """Why a pod is deleted."""

    FAILED = "failed"
    SUCCEEDED = "succeeded"
    DUPLICATE = "duplicate"
    UNWANTED = "unwanted"
    OUTDATED = "outdated"


@dataclass(frozen=True, slots=True)
class CreatePod:
    """A pod for a node. The name is made from `seed`, which tells what was seen there
    (`gitops_ds.daemonset.pod_factory.name`).
    """

    node: str
    body: Body
    seed: str
    why: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """The end of exactly this pod."""

    key: Key
    uid: str
    node: str
    cause: DeleteCause
    why: str


@dataclass(frozen=True, slots=True)
class RelabelPod:
    """Another revision hash on a pod that runs the same template."""

    key: Key
    uid: str
    hash: str
    why: str


@dataclass(frozen=True, slots=True)
class Adopt:
    """An orphan (a pod or a revision) becomes the DaemonSet's, if the DaemonSet is still itself."""

    key: Key
    uid: str
    why: str


@dataclass(frozen=True, slots=True)
class Release:
    """A pod or a revision that the selector left stops being the DaemonSet's."""

    key: Key
    uid: str
    why: str


@dataclass(frozen=True, slots=True)
class CreateRevision:
    """A new ControllerRevision. If its name is taken by other data, the collision count is raised
    from `collision_count`.
    """

    key: Key
    body: Body
    collision_count: int | None
    why: str


@dataclass(frozen=True, slots=True)
class RenumberRevision:
    """An earlier template is wanted again: its revision gets the highest number."""

    key: Key
    uid: str
    number: int
    why: str


@dataclass(frozen=True, slots=True)
class LabelRevision:
    """A revision without a hash gets one."""

    key: Key
    uid: str
    hash: str
    why: str


@dataclass(frozen=True, slots=True)
class DeleteRevision:
    """The end of exactly this revision."""

    key: Key
    uid: str
    why: str


Action = (
    CreatePod
    | DeletePod
    | RelabelPod
    | Adopt
    | Release
    | CreateRevision
    | RenumberRevision
    | LabelRevision
    | DeleteRevision
)


@dataclass(frozen=True, slots=True)
class StatusUpdate:
    """What to write into the DaemonSet's status."""

    counts: Counts
    observed_generation: int


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do, in steps that build on each other: a step with an error stops the later ones, not
    the status.

    `status` is None when nothing in it changed. `wake_after` is the number of seconds after which
    time alone changes the answer, None if it never does. `backoffs` are to be remembered, by node.
    `complaint` says why the DaemonSet can't be obeyed. `unplaced` says by node why a pod has no
    room there.
    """

    steps: tuple[tuple[Action, ...], ...] = ()
    status: StatusUpdate | None = None
    wake_after: float | None = None
    backoffs: Mapping[str, FailedPodBackoff] = field(default_factory=dict)
    complaint: str = ""
    unplaced: Mapping[str, str] = field(default_factory=dict)

    @property
    def actions(self) -> tuple[Action, ...]:
        """All steps in one row."""
        return tuple(action for step in self.steps for action in step)


class HealthState(StrEnum):
    """The healths of docs/command-line.md."""

    HEALTHY = "Healthy"
    PROGRESSING = "Progressing"
    DEGRADED = "Degraded"
    SUSPENDED = "Suspended"
    MISSING = "Missing"
    FAILED = "Failed"


class Blame(StrEnum):
    """Whose fault it is that a node's agent is not well and of the wanted template.

    CLUSTER: the pod is refused, by a quota or an admission webhook. DESIGN: somebody wants it so,
    and it waits. UNKNOWN: it is on its way.
    """

    TEMPLATE = "template"
    NODE = "node"
    CLUSTER = "cluster"
    DESIGN = "design"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """A node whose agent is not well: the reason in one word, whose fault, and the message of the
    kubelet or scheduler.
    """

    node: str
    reason: str
    blame: Blame
    message: str = ""


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """The nodes that shall run an agent, each counted once.

    `updated` run the wanted template well, `starting` are about to, `old` run an earlier one till
    their turn comes, `parked` by design; `joining` came after the change began and have no well one
    yet. Of the others the name tells whose fault it is; `refused` are those whose pod a quota or
    webhook did not let in.
    """

    updated: int = 0
    starting: int = 0
    old: int = 0
    parked: int = 0
    node_fault: int = 0
    template_fault: int = 0
    refused: int = 0
    joining: int = 0


@dataclass(frozen=True, slots=True)
class Health:
    """How a DaemonSet does: the state, a sentence for people, and the nodes that are not well,
    sorted by name.

    `again` is when (seconds since 1970) time alone may change the answer, None if it never does.
    """

    state: HealthState
    message: str
    nodes: tuple[NodeHealth, ...] = ()
    tally: NodeCounts = NodeCounts()
    again: float | None = None
