"""A reconciliation of the controller: the observation, the decision, the powers."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from gitops_ds.core.daemonset import Counts, DaemonSet, Pod
from gitops_ds.core.errors import ClusterError
from gitops_ds.core.live import Node, Revision
from gitops_ds.core.objects import Body, Key


class FailedPodBackoff(msgspec.Struct, frozen=True):
    """The delay after a pod failed on a node: `delay` seconds from `since`."""

    since: float
    delay: float

    @property
    def until(self) -> float:
        """When the next failed pod may be deleted."""
        return self.since + self.delay


class FreeCapacity(msgspec.Struct, frozen=True):
    """The free capacity of a node: amounts by resource, in thousandths of its unit, and the used
    host ports.

    `free` has the resources in the node's status; a port is a protocol, a host IP and a number.
    """

    free: Mapping[str, int]
    ports: tuple[tuple[str, str, int], ...] = ()


class Observation(msgspec.Struct, frozen=True):
    """The complete input of a decision, read at one time.

    `pods` and `revisions` are those that name the DaemonSet's UID as their controller, regardless
    of their labels, and the orphans of its namespace that its selector matches; pods sorted by
    name, revisions by number and name, `nodes` by name. `backoffs` are those of failed pods, by
    node. `vanished` maps a node to the UID of the last pod that vanished there. `now` is in seconds
    since 1970. `rooms` is None if the scheduler places the pods; otherwise the controller does, and
    it has the free capacity of each node. `own_node` is the node of this process, if known: it is
    last in a rollout. `namesake` is a revision outside `revisions` with the name of this template's
    revision. `unshown` is the number of created pods that the watch has not shown yet. `epoch` is
    that of the objects (`gitops_ds.daemonset.epochs`); kinds that are `unlisted`, by their plural,
    may be of an earlier one, and nothing is written by such a mix.
    """

    now: float
    daemonset: DaemonSet
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...] = ()
    revisions: tuple[Revision, ...] = ()
    backoffs: Mapping[str, FailedPodBackoff] = msgspec.field(default_factory=dict)
    vanished: Mapping[str, str] = msgspec.field(default_factory=dict)
    rooms: Mapping[str, FreeCapacity] | None = None
    own_node: str = ""
    namesake: Revision | None = None
    unshown: int = 0
    epoch: int = 0
    unlisted: tuple[str, ...] = ()


class DeleteCause(StrEnum):
    """Why a pod is deleted."""

    FAILED = "failed"
    SUCCEEDED = "succeeded"
    DUPLICATE = "duplicate"
    UNWANTED = "unwanted"
    OUTDATED = "outdated"


class PodMark(msgspec.Struct, frozen=True):
    """The label `names.REPLACED` for exactly this pod: a pinned pod of the DaemonSet is not bound
    beside it.
    """

    key: Key
    uid: str
    daemonset: str


class CreatePod(msgspec.Struct, frozen=True):
    """A pod for a node. The name is made from `seed`, which depends on the observed pods of the
    node (`gitops_ds.daemonset.pod_changes.pod_name`). The pods `after` which it is bound are marked
    before.
    """

    node: str
    body: Body
    seed: str
    why: str
    after: tuple[PodMark, ...] = ()


class DeletePod(msgspec.Struct, frozen=True):
    """The deletion of exactly this pod, marked before if a pinned pod replaces it."""

    key: Key
    uid: str
    node: str
    cause: DeleteCause
    why: str
    mark: PodMark | None = None


class RelabelPod(msgspec.Struct, frozen=True):
    """Replaces the revision hash of a pod that runs the same template."""

    key: Key
    uid: str
    hash: str
    why: str


class Adopt(msgspec.Struct, frozen=True):
    """Sets the controller reference of an orphan (a pod or a revision), if the DaemonSet still has
    the same UID.
    """

    key: Key
    uid: str
    why: str


class Release(msgspec.Struct, frozen=True):
    """Removes the controller reference of a pod or a revision that the selector no longer
    matches.
    """

    key: Key
    uid: str
    why: str


class CreateRevision(msgspec.Struct, frozen=True):
    """Creates a ControllerRevision. If its name is used by other data, increments the collision
    count `collision_count`.
    """

    key: Key
    body: Body
    collision_count: int | None
    why: str


class RenumberRevision(msgspec.Struct, frozen=True):
    """Gives the revision of an earlier template, which is the current one again, the highest
    number.
    """

    key: Key
    uid: str
    number: int
    why: str


class LabelRevision(msgspec.Struct, frozen=True):
    """Adds the hash label to a revision without one."""

    key: Key
    uid: str
    hash: str
    why: str


class DeleteRevision(msgspec.Struct, frozen=True):
    """The deletion of exactly this revision."""

    key: Key
    uid: str
    why: str


class NominatePod(msgspec.Struct, frozen=True):
    """Nominates the node of a waiting pinned pod for it (`status.nominatedNodeName`): the scheduler
    keeps the place that the earlier pod leaves.
    """

    key: Key
    uid: str
    node: str
    why: str


class RecordRollout(msgspec.Struct, frozen=True):
    """Writes the record of a rollout, or the proof of a template, to a revision: the text of its
    annotation.
    """

    key: Key
    uid: str
    record: str
    why: str
    annotation: str


class PromoteRevision(msgspec.Struct, frozen=True):
    """Makes a target revision one of the DaemonSet's own, because its rollout is complete.

    `labels` are the template's, with the hash; `proof` is the text of its proof, empty if the
    DaemonSet gets the template early. Its number stays 0, below every other: the
    controller that manages the DaemonSet gives it the next number when the DaemonSet gets the
    template.
    """

    key: Key
    uid: str
    labels: Mapping[str, str]
    why: str
    proof: str = ""


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
    | NominatePod
    | RecordRollout
    | PromoteRevision
)


class StatusUpdate(msgspec.Struct, frozen=True):
    """The new values of the DaemonSet's status."""

    counts: Counts
    observed_generation: int


class Decision(msgspec.Struct, frozen=True):
    """The actions, in steps that depend on each other: an error in a step skips the later steps,
    but not the status update.

    `status` is None without a change. `wake_after` is the number of seconds after which the
    decision changes without any event, None if it never does. `backoffs` are the back-offs to keep,
    by node. `complaint` is the reason why the DaemonSet can't be reconciled. `unplaced` maps a node
    to the reason why a pod does not fit there.
    """

    steps: tuple[tuple[Action, ...], ...] = ()
    status: StatusUpdate | None = None
    wake_after: float | None = None
    backoffs: Mapping[str, FailedPodBackoff] = msgspec.field(default_factory=dict)
    complaint: str = ""
    unplaced: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions of all steps."""
        return tuple(action for step in self.steps for action in step)


class Powers(StrEnum):
    """The permissions of the controller. Decisions are the same with all of them.

    OBSERVE decides without any writes; PACE writes only for agents with a rollout policy; FULL is
    the cluster's only DaemonSet controller.
    """

    OBSERVE = "observe"
    PACE = "pace"
    FULL = "full"


class ExecutionOutcome(msgspec.Struct, frozen=True):
    """The result of a decision.

    `errors` ended it, and it must be executed again. `refused` are the actions that the API server
    did not carry out, including those that are not retried at once; each further attempt is later.
    `wrote`: the next observation differs. `may_nominate`: no nomination lacked a permission.
    `refusal` is the first other action that was refused, with the error.
    """

    errors: tuple[ClusterError, ...]
    wrote: bool
    refused: tuple[Action, ...] = ()
    may_nominate: bool = True
    refusal: tuple[Action, ClusterError] | None = None
