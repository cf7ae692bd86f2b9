"""The changes of an apply, the skipped objects, the effect on nodes, and the preview of a staged
rollout.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from gitops_ds.core.live import NodeImpact
from gitops_ds.core.objects import CommitId, Digest, Key, Path
from gitops_ds.core.rollouts import staged_rollout
from gitops_ds.core.rollouts.cluster_report import NO_ORDER, ClusterOrder
from gitops_ds.core.skip_reasons import DriftPolicy, Skipped, SkipReason
from gitops_ds.core.sources.bundle import Manifest


class Cost(msgspec.Struct, frozen=True):
    """The additional (or lower) request of a resource, in thousandths of its unit: each pod, and
    all nodes together.

    `nodes` is the number of nodes with the agent afterwards, None if other nodes have it than
    before: then `total` is not a product.
    """

    resource: str
    each: int
    nodes: int | None
    total: int


class StagePreview(msgspec.Struct, frozen=True):
    """One stage: its nodes in the order in which they are updated, and its times in seconds after
    the start. It takes its node of the stage `taken_from` if that is set.

    `begins` is None for a stage without nodes, `ends` None for one that does not end. `waits` are
    conditions that can't be simulated: approvals, windows, measured gates.
    """

    name: str
    nodes: tuple[str, ...]
    begins: float | None = None
    ends: float | None = None
    waits: tuple[str, ...] = ()
    taken_from: str = ""

    @property
    def label(self) -> str:
        """Its name for people."""
        return staged_rollout.stage_label(self.name, self.taken_from)


class StagedPreview(msgspec.Struct, frozen=True):
    """A whole rollout without faults. `seconds` is its length, None if it does not end.

    `cap` is the maximum of nodes at risk at once. `parked` are the nodes that are broken now: they
    are updated after they recover. `start` and `stop` are the assumed seconds of a pod until it is
    ready, and until it is gone. `estimated`: only the beginning of a rollout on many nodes was
    simulated.
    """

    stages: tuple[StagePreview, ...]
    seconds: float | None
    cap: int
    parked: tuple[str, ...] = ()
    start: float = 0.0
    stop: float = 0.0
    estimated: bool = False

    @property
    def order(self) -> tuple[str, ...]:
        """The nodes in the order of their update, stage by stage."""
        return tuple(node for stage in self.stages for node in stage.nodes)


class Operation(StrEnum):
    """What happens to an object."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    KEEP = "keep"

    @property
    def past(self) -> str:
        """`created` of `create`."""
        return self.value + ("d" if self.value.endswith("e") else "ed")


class FieldChange(msgspec.Struct, frozen=True):
    """One field that differs; None if absent."""

    path: Path
    old: Any
    new: Any


class Rollout(msgspec.Struct, frozen=True):
    """The effect of a change on the pod template, compared with the live ControllerRevisions.

    `known_as` is the number of the revision that already holds the new template: equal to `current`
    without a rollout, an earlier number for a rollback, None for a new template. `becomes` is the
    number that the template will have.
    """

    old: Digest | None
    new: Digest
    current: int | None
    known_as: int | None
    becomes: int

    @property
    def rolls(self) -> bool:
        """Whether pods will be replaced (or, under OnDelete, are due to be)."""
        return self.old is not None and self.old != self.new


class Change(msgspec.Struct, frozen=True):
    """The change of one object. `manifest` is None for a delete, `stages` if nothing is staged.

    `target` explains how a DaemonSet with a rollout policy gets its template; empty without one.
    `costs` are its additional requests on all nodes, empty if these are unknown.
    """

    operation: Operation
    key: Key
    manifest: Manifest | None
    fields: tuple[FieldChange, ...] = ()
    rollout: Rollout | None = None
    nodes: NodeImpact = NodeImpact()
    stages: StagedPreview | None = None
    target: str = ""
    costs: tuple[Cost, ...] = ()


class Author(msgspec.Struct, frozen=True):
    """A field manager that owns a differing field; `at` is the time of its last write, as the API
    server writes it.

    https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
    """

    manager: str
    operation: str = "Update"
    subresource: str = ""
    at: str = ""


class Drifted(msgspec.Struct, frozen=True):
    """The differences of a live object from the manifest that was applied: of each field `old` is
    live, `new` is Git's.

    Without fields the object itself was deleted. `looks_like` is the likely command: `kubectl set
    image`. `contested`: the drift returned after each of the last corrections.
    """

    fields: tuple[FieldChange, ...]
    by: tuple[Author, ...]
    looks_like: str
    choice: DriftPolicy
    uid: str = ""
    contested: bool = False


class Plan(msgspec.Struct, frozen=True):
    """All changes of an apply of one commit to one cluster, in order.

    `hash` identifies the result: the objects of Git, the deleted objects and how they are deleted,
    and after a dash the maximum of nodes that may lose an agent. `drifted` are the objects that
    were changed in the cluster, regardless of the drift policy; `approved` those whose deletion a
    person has approved; `held` the changes that a guard holds back until the hash is approved;
    `order` is the place of the cluster among those of the repository.
    """

    commit: CommitId | None
    cluster: str
    changes: tuple[Change, ...]
    refusals: tuple[Skipped, ...]
    hash: str
    drifted: Mapping[Key, Drifted] = msgspec.field(default_factory=dict)
    approved: frozenset[Key] = frozenset()
    held: tuple[Change, ...] = ()
    order: ClusterOrder = NO_ORDER

    @property
    def writes(self) -> tuple[Change, ...]:
        """The changes that are not KEEP."""
        return tuple(c for c in self.changes if c.operation is not Operation.KEEP)

    @property
    def unknown_nodes(self) -> Skipped | None:
        """Why the effect on nodes is unknown: then no change names nodes, and the plan is not
        applied. None if it is known.
        """
        return next(
            (refusal for refusal in self.refusals if refusal.reason is SkipReason.UNKNOWN_NODES),
            None,
        )
