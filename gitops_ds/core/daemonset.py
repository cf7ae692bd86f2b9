"""A DaemonSet and its pods for the controller's decisions: parsed once, with only the required
fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from gitops_ds.core import names
from gitops_ds.core.objects import Body, Key
from gitops_ds.core.sources.bundle import Requirement


class ContainerContent(msgspec.Struct, frozen=True, gc=False):
    """A container or an init container. `rest` is a digest of its command, arguments, working
    directory and of how it becomes ready.
    """

    name: str
    image: str
    rest: str


class PodContent(msgspec.Struct, frozen=True, omit_defaults=True):
    """The containers of a pod or of a template. `room` is a digest of what the scheduler needs to
    find a node, empty for a pod that has one.
    """

    containers: tuple[ContainerContent, ...]
    room: str = ""


class Phase(StrEnum):
    """https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-phase"""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


_ENDED = (Phase.SUCCEEDED, Phase.FAILED)


class Owner(msgspec.Struct, frozen=True, gc=False):
    """The one owner reference with `controller: true`."""

    kind: str
    name: str
    uid: str


class PodCause(msgspec.Struct, frozen=True):
    """Why a pod fails: the reason in one word, and the message."""

    reason: str
    message: str


class Pod(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A pod. `node` is the node of the pod by its binding or affinity, empty if its affinity names
    no single node.

    `bound`: `spec.nodeName` is set. Times are seconds since 1970. `ready_since` is the last change
    of the condition Ready, None if the kubelet set none. `trouble` is the reason why it does not
    run (`ImagePullBackOff`, `Unschedulable`), else empty; `reason` and `message` are for people
    (`Init:CrashLoopBackOff`), and may be of an earlier crash. `crashed_at` is when one of its
    containers last ended with an error, `crash` the reason (`OOMKilled`). `restarts` counts the
    restarts of its containers; until `settles_at` they have not run for long enough after the last
    one. `last_run` are the seconds of the shortest last run of those that restarted, until
    `last_end`. `waits`: the scheduler binds it when the earlier pod of its node is gone; `gated`:
    the scheduling gate of an earlier version holds it; `released` is when the earlier pod was gone,
    or until it is bound, when that one ends at the latest; `boot_id` is that of its node when it
    was created, if stated; `heals`: it replaced a pod that was not ready. `content` is what it
    runs, None without a DaemonSet as its controller. `placed` is when it was bound. Only of a
    pinned pod: `launched` is when the last of its containers that never restarted began to run;
    `nominated`: its node is nominated for it; `unprepared`: on its node, its volumes are not
    mounted, or its network is not ready. `changed`: its spec was changed after its creation, which
    the API server counts since Kubernetes 1.33.
    """

    namespace: str
    name: str
    uid: str
    version: str = ""
    node: str = ""
    bound: bool = False
    labels: Mapping[str, str] = {}
    owner: Owner | None = None
    phase: Phase = Phase.PENDING
    terminating: bool = False
    created: float = 0.0
    ready: bool = False
    ready_since: float | None = None
    hash: str = ""
    template_generation: str = ""
    trouble: str = ""
    reason: str = ""
    message: str = ""
    crashed_at: float | None = None
    crash: str = ""
    restarts: int = 0
    settles_at: float = 0.0
    last_run: float | None = None
    last_end: float = 0.0
    waits: bool = False
    gated: bool = False
    released: float = 0.0
    boot_id: str = ""
    heals: bool = False
    content: PodContent | None = None
    placed: float = 0.0
    launched: float = 0.0
    nominated: bool = False
    unprepared: bool = False
    changed: bool = False

    @property
    def ended(self) -> bool:
        """Whether the pod has ended permanently: none of its containers runs again."""
        return self.phase in _ENDED

    @property
    def pinned(self) -> bool:
        """Whether a rollout made the pod, by its labels. The DaemonSet controller copies the label
        of a rollout from a template that someone edited, and always adds the template generation,
        which a pinned pod lacks.
        """
        return names.ROLLOUT in self.labels and not self.template_generation

    def available_at(self, min_ready_seconds: int) -> float | None:
        """The time from which it counts as available; None if it is not ready or has no time."""
        if not self.ready:
            return None
        if min_ready_seconds == 0:
            return 0.0
        return None if self.ready_since is None else self.ready_since + min_ready_seconds

    def available(self, min_ready_seconds: int, now: float) -> bool:
        """Ready for at least `min_ready_seconds`."""
        since = self.available_at(min_ready_seconds)
        return since is not None and since <= now


class Share(msgspec.Struct, frozen=True):
    """A number of nodes: absolute, or a percentage of the desired number."""

    amount: int
    percent: bool = False

    def of(self, total: int) -> int:
        """The number of nodes, rounded up as for maxUnavailable and maxSurge of a DaemonSet."""
        return -(-self.amount * total // 100) if self.percent else self.amount


class RollingUpdate(msgspec.Struct, frozen=True):
    """Replaces pods automatically, with a limit on unavailable or surplus pods."""

    max_unavailable: Share = Share(1)
    max_surge: Share = Share(0)

    @property
    def surges(self) -> bool:
        """Whether new pods are created beside the old ones."""
        return self.max_surge.amount > 0


class OnDelete(msgspec.Struct, frozen=True):
    """Replaces a pod only after its deletion."""


Strategy = RollingUpdate | OnDelete


class Counts(msgspec.Struct, frozen=True):
    """The counters of a DaemonSet's status, under the field names of the API without `number`."""

    desired: int = 0
    current: int = 0
    misscheduled: int = 0
    ready: int = 0
    updated: int = 0
    available: int = 0

    @property
    def unavailable(self) -> int:
        """Nodes that should run an available pod but do not."""
        return self.desired - self.available


class DaemonSet(msgspec.Struct, frozen=True):
    """A DaemonSet; `raw` is the object as the server wrote it, byte for byte.

    `template_generation` is the text of its annotation if that is a number, else empty. `selector`
    is None if it selects everything; such a DaemonSet must not be reconciled. `counts` and
    `observed_generation` are those of its status. `unannounced` are the annotations for its rollout
    that its deployer did not announce, and `owner` is the owner that it announced, as far as known.
    """

    key: Key
    uid: str
    template: Body
    raw: Body
    selector: tuple[Requirement, ...] | None
    version: str = ""
    generation: int = 0
    deleting: bool = False
    strategy: Strategy = RollingUpdate()
    min_ready_seconds: int = 0
    history_limit: int = 10
    template_generation: str = ""
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    counts: Counts | None = None
    observed_generation: int = 0
    collision_count: int | None = None
    unannounced: tuple[str, ...] = ()
    owner: str = ""

    @property
    def suspended(self) -> bool:
        """Whether its rollouts are paused by our annotation."""
        return self.annotations.get(names.SUSPEND) == "true"

    @property
    def suspend_reason(self) -> str:
        """Why it is suspended, as its annotation states it."""
        return self.annotations.get(names.SUSPEND_REASON, "")
