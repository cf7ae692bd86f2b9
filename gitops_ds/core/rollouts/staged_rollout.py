"""A staged rollout as values: its target, its record with the approvals, and the progress of each
node and stage.

All times are seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from datetime import UTC, datetime
from enum import StrEnum

import msgspec

from gitops_ds.core.daemonset import PodCause, PodContent
from gitops_ds.core.health import Blame
from gitops_ds.core.objects import Body, CommitId, Key
from gitops_ds.core.rollouts.rollout_gates import GateEvidence, GateRecord, Probe, Reading
from gitops_ds.core.rollouts.rollout_policy import RolloutPolicy
from gitops_ds.core.sources.bundle import Pool

ANNOTATION = "annotation"
TRAILER = "Gitops-Ds-Approve"  # of a signed commit


class StageApproval(msgspec.Struct, frozen=True, omit_defaults=True):
    """An approval of a stage: the name of `approval.from`, the approver, and how it was given.

    `hash` is that of the target, empty for any target of the revision that holds the approval.
    """

    stage: str
    hash: str = ""
    approver: str = msgspec.field(name="from", default="")
    by: str = ""
    how: str = ANNOTATION

    @property
    def text(self) -> str:
        """`ada@example.com (team-gpu), commit 0123456789ab`."""
        who = f"{self.by} ({self.approver})" if self.approver else self.by
        return ", ".join(filter(None, (who, self.how)))


class Approver(msgspec.Struct, frozen=True):
    """A name of `approval.from` in the settings of a repository.

    `keys` are fingerprints, and principals of ssh keys; `users` and `teams` are those of the forge.
    """

    name: str
    keys: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    teams: frozenset[str] = frozenset()


class WaitingStage(msgspec.Struct, frozen=True):
    """The current stage of a rollout, which needs an approval.

    `owner` is the uid of the DaemonSet. `revision`, `uid` and `hash` are those of the target
    revision, `commit` is the first applied one with the template, `since` the last applied one
    without it (empty: unknown). `approvers` are the names of `approval.from`. `files` are the files
    and directories that decide the template. `annotation` is the present text of the annotation
    with the approvals, empty if another writer gave it (`is_forged`). `stages` are the names of all
    stages of the rollout.
    """

    daemonset: Key
    owner: str
    revision: str
    uid: str
    hash: str
    commit: CommitId
    since: str
    stage: str
    approvers: tuple[str, ...]
    files: Set[str] = frozenset()
    annotation: str = ""
    is_forged: bool = False
    stages: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """`NAMESPACE/DAEMONSET/STAGE`, as in the trailer of a commit."""
        return f"{self.daemonset.namespace}/{self.daemonset.name}/{self.stage}"


class RolloutTarget(msgspec.Struct, frozen=True):
    """The template that the nodes get: with `staged` that of a rollout, by its stages; else the
    proven one, which nodes with another template get back.

    `revision` names the ControllerRevision that pinned pods are made from, empty if the DaemonSet
    has the template and its controller makes the pods. `hash` is the `controller-revision-hash` of
    new pods, `hashes` those of all revisions with the template; `proven` are those of the proven
    template. That one is in force `since` a time, in seconds since 1970. `edited`: the DaemonSet
    has neither template, by an edit in the cluster. `source` is the digest of the template in Git.
    A pod of a rollout runs one of `contents`, if they are known: the template, and what the API
    server made of its pods.
    """

    hash: str
    template: Body
    revision: str = ""
    uid: str = ""
    commit: str = ""
    staged: bool = False
    hashes: frozenset[str] = frozenset()
    proven: frozenset[str] = frozenset()
    since: float = 0.0
    edited: bool = False
    source: str = ""
    contents: tuple[PodContent, ...] = ()


class FailedNode(msgspec.Struct, frozen=True):
    """A touched node that failed: the reason in one word, the message, and the cause."""

    node: str
    reason: str
    message: str = ""
    blame: Blame = Blame.TEMPLATE


class Halt(msgspec.Struct, frozen=True):
    """Why a rollout is halted: failed nodes, or a gate. It stays halted until another target
    replaces it.
    """

    at: float
    stage: str
    message: str
    nodes: tuple[FailedNode, ...] = ()
    gate: GateEvidence | None = None


class RolloutRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of a rollout that can't be derived from pods and nodes, an annotation of the target
    revision.

    `passed` maps each stage that was passed to the time; a passed stage stays passed when its pods
    are replaced. `early`: the DaemonSet gets the template before every stage is passed. `before` is
    when the current stage first touched a node, if a gate compares with the time before; `gates`
    are the results of its measured gates; `refused` is the message of the API server that refuses a
    write, the first one, and `refuses` is what it refuses. The size depends on the number of stages
    and gates only.
    """

    began: float = 0.0
    passed: Mapping[str, float] = {}
    halt: Halt | None = None
    early: bool = False
    before: Mapping[str, float] = {}
    gates: Mapping[str, GateRecord] = {}
    refused: str = ""
    refuses: str = ""


RECORD = "the record of the rollout"  # in `refuses`


class StageInputs(msgspec.Struct, frozen=True):
    """The inputs of a decision about a rollout other than pods and nodes.

    `approved` names the stages that are approved, and `approvals` states by whom, for people only;
    `readings` are the last measurements of gates; `behind` maps each agent of `after` to the nodes
    where it is not up to date (None: anywhere in the cluster); `busy` are the nodes with pods that
    belong to no DaemonSet; `refused` is the message of the API server that refuses a write, else
    empty, and `refuses` what it refuses (empty: the pods): it is tried again at `refused_until`
    (None: unknown); `held` is the reason for which a person must release the rollout first, else
    empty; `halted` are the hashes of the pods of halted templates; `halted_elsewhere` names the
    halted rollout that halts this one, else empty; `at_once` is the maximum of nodes that may be
    taken now by `limits.api`, None without a limit; `warnings` are the newest warning events of
    pods that are not well, by their UID; `foreign` is the annotation of the deployer that another
    writer changed or removed, else empty: it states nothing; `arrived` are the first pods,
    NAMESPACE/NAME, that were bound to nodes where a pod of the target waits for its place, by node;
    `nominates`: pods may be nominated, as far as known. `moved`: the DaemonSet has other nodes, by
    an edit.
    """

    policy: RolloutPolicy
    target: RolloutTarget
    record: RolloutRecord
    pools: tuple[Pool, ...] = ()
    approved: frozenset[str] = frozenset()
    approvals: tuple[StageApproval, ...] = ()
    readings: Mapping[Probe, Reading] = msgspec.field(default_factory=dict)
    behind: Mapping[str, frozenset[str] | None] = msgspec.field(default_factory=dict)
    busy: frozenset[str] = frozenset()
    refused: str = ""
    refused_until: float | None = None
    refuses: str = ""
    held: str = ""
    halted: frozenset[str] = frozenset()
    halted_elsewhere: str = ""
    at_once: int | None = None
    warnings: Mapping[str, PodCause] = msgspec.field(default_factory=dict)
    foreign: str = ""
    arrived: Mapping[str, str] = msgspec.field(default_factory=dict)
    nominates: bool = False
    moved: bool = False

    @property
    def is_edited(self) -> bool:
        """Whether an edit in the cluster decides about stages or nodes: nothing of it counts."""
        return bool(self.foreign) or self.moved


class NodeStep(StrEnum):
    """The progress of a node. PARKED: a node that was broken before the rollout touched it, not
    only its agent. SET_ASIDE: broken afterwards, by its own fault.
    """

    WAITING = "waiting"
    PARKED = "parked"
    REPLACING = "replacing"
    STARTING = "starting"
    SOAKING = "soaking"
    PROVED = "proved"
    FAILED = "failed"
    SET_ASIDE = "set-aside"


# The steps of an update until the new pod is ready, and until it is proved, in their order.
UPDATING = (NodeStep.REPLACING, NodeStep.STARTING)
MOVING = (*UPDATING, NodeStep.SOAKING)
# The steps of nodes for which a rollout does not wait.
APART = (NodeStep.PARKED, NodeStep.SET_ASIDE)


class NodeProgress(msgspec.Struct, frozen=True):
    """One node of a rollout: its stage, its step, the reason in one word, and when the step changes
    without an event.

    The reason of a waiting node is why its earlier agent is not ready, that of a proved node why
    its new one is not. `heals`: the agent was not ready before the touch either. `ran` is how long
    a proved node ran the template until it failed, or runs it, in seconds. `cause` is what causes
    the failure instead of the template, in words: others can.
    """

    node: str
    stage: str
    step: NodeStep
    reason: str = ""
    message: str = ""
    until: float | None = None
    heals: bool = False
    ran: float = 0.0
    cause: str = ""


class StageState(StrEnum):
    """The state of a stage."""

    PENDING = "pending"
    OPEN = "open"
    HELD = "held"
    HALTED = "halted"
    PASSED = "passed"


class HoldKind(StrEnum):
    """The kinds of holds; the values are a label of metrics, and in JSON."""

    SUSPENDED = "suspended"
    HALTED_BEFORE = "halted-before"
    HALTED_ELSEWHERE = "halted-elsewhere"
    REFUSED = "refused"
    SUSPICION = "suspicion"
    PARKED = "parked"
    FREEZE = "freeze"
    WINDOW = "window"
    APPROVAL = "approval"
    AFTER = "after"
    UNABLE = "unable"
    EDITED = "edited"
    AT_RISK = "at-risk"
    BATCH = "batch"
    OTHERS = "others"
    GATE = "gate"
    IDLE = "idle"
    RELISTED = "relisted"


class StageWait(msgspec.Struct, frozen=True):
    """What a stage waits for, and when that ends, None if unknown."""

    reason: str
    until: float | None = None

    @property
    def text(self) -> str:
        """The reason, and the time (UTC) of its end."""
        if self.until is None:
            return self.reason
        ends = datetime.fromtimestamp(self.until, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"{self.reason}, until {ends}"


class StageHold(StageWait, frozen=True, kw_only=True):
    """Why no further node is updated now. `about` is what differs between two holds of a kind, as
    the gate; its reason may change meanwhile.
    """

    kind: HoldKind
    about: str = ""


def stage_label(name: str, taken_from: str) -> str:
    """The name of a stage for people, which states if the stage takes its node of another one."""
    return f"{name} (no node matches it: a node of {taken_from})" if taken_from else name


class StageProgress(msgspec.Struct, frozen=True):
    """A stage with its nodes in the order in which they are updated. `taken_from`: no node is in
    its scope, so it has one of that stage.
    """

    name: str
    state: StageState
    nodes: tuple[str, ...] = ()
    proved: int = 0
    taken_from: str = ""

    @property
    def label(self) -> str:
        """Its name for people."""
        return stage_label(self.name, self.taken_from)


class StagesDecision(msgspec.Struct, frozen=True):
    """The decision about a rollout.

    `take` are the nodes whose pods are replaced now, in order; `returned` are those that get the
    proven template back meanwhile; `open` are all nodes that may run
    the target. `cap` is the maximum of nodes at risk. `complete`: every node that can be updated is
    proved. `wake_at` is when the decision changes without an event, None if it never does.
    """

    take: tuple[str, ...]
    open: frozenset[str]
    nodes: tuple[NodeProgress, ...]
    stages: tuple[StageProgress, ...]
    at_risk: int
    cap: int
    record: RolloutRecord
    hold: StageHold | None = None
    complete: bool = False
    commits: bool = False
    returned: tuple[str, ...] = ()
    wake_at: float | None = None

    @property
    def halt(self) -> Halt | None:
        """Why the rollout is halted, None if it is not."""
        return self.record.halt
