"""What the cluster's own event log is told of: a fold of records, with reasons that people know.
Pure.

The deployer speaks on its state's ConfigMap. On the DaemonSet stand the controller, with the
reasons and messages of Kubernetes' own one, and what becomes of commits there. A fact that comes
again raises the count of its event; many alike are one; and who talks too much is cut short, so
that a rollout over 5,000 nodes costs the API server a few dozen events (the rules of client-go's
tools/record/events_cache.go).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeGuard, TypeVar

from gitops_ds.model import guards, source_status
from gitops_ds.model.decision import Action, CreatePod, DeleteCause, DeletePod, HealthState
from gitops_ds.model.events import agents, base, deployer, leader_election, requests
from gitops_ds.model.events.agents import Loss
from gitops_ds.model.events.base import Record
from gitops_ds.model.guards import PRUNING
from gitops_ds.model.objects import DAEMONSET, LEASE, Key, short
from gitops_ds.model.plural import counted
from gitops_ds.model.source_status import Condition
from gitops_ds.redaction import report

ALIKE = 10  # different messages of one reason, before the next ones are told as one
ALIKE_WITHIN = 600.0  # seconds
BURST, REFILL = 25, 300.0  # events about one object; then one in so many seconds
REMEMBERED = 4096
COMBINED = "(combined from similar events): "


@dataclass(frozen=True, slots=True)
class InvolvedObject:
    """The object that an event stands on."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class KubeEvent:
    """An event on an object: its reason, its message, and whether somebody should look."""

    about: InvolvedObject
    reason: str
    message: str
    warning: bool = False


@dataclass(slots=True)
class Reporter:
    """Turns records into events; the deployer's stand on its `state`. It remembers the UIDs of the
    DaemonSets it heard of.
    """

    state: InvolvedObject | None = None
    _uids: dict[Key, str] = field(default_factory=dict)

    def told(self, heard: Record) -> tuple[KubeEvent, ...]:
        """The events of a record; none for what the log alone keeps."""
        match heard:
            case base.Decided(daemonset=key, decision=decision, seen=seen, performed=True):
                self._uids[key] = seen.daemonset.uid
                about = self._about(key)
                complaint = (
                    (KubeEvent(about, "SelectingAll", decision.complaint, warning=True),)
                    if decision.complaint
                    else ()
                )
                ended = (_found(action, about) for action in decision.actions if _has_ended(action))
                return (
                    *complaint,
                    *ended,
                    *(_misfit(*one, about) for one in decision.unplaced.items()),
                )
            case base.Performed(daemonset=key, action=CreatePod(), object=pod):
                return (
                    KubeEvent(self._about(key), "SuccessfulCreate", f"Created pod: {pod.name}"),
                )
            case base.Performed(daemonset=key, action=DeletePod(), object=pod):
                return (
                    KubeEvent(self._about(key), "SuccessfulDelete", f"Deleted pod: {pod.name}"),
                )
            case base.ActionFailed(daemonset=key, action=action, error=error):
                reason, doing = _FAILURES.get(
                    type(action), ("FailedHistory", "writing the history")
                )
                return (
                    KubeEvent(
                        self._about(key), reason, f"Error {doing}: {error.said}", warning=True
                    ),
                )
            case agents.Standing(daemonset=key, uid=uid):
                found = stands(
                    heard,
                    InvolvedObject(DAEMONSET.api_version, key.kind, key.namespace, key.name, uid),
                )
                return (found,) if found else ()
            case leader_election.LeaderElected(namespace=namespace, lease=lease, me=me) if (
                self.state is None
            ):
                about = InvolvedObject(LEASE.api_version, LEASE.kind, namespace, lease)
                return (KubeEvent(about, "LeaderElected", f"{me} leads"),)
            case _:
                found = deployed(heard, self.state) if self.state else None
                return (found,) if found else ()

    def _about(self, key: Key) -> InvolvedObject:
        return InvolvedObject(
            DAEMONSET.api_version, key.kind, key.namespace, key.name, self._uids.get(key, "")
        )


# Told as by Kubernetes' own controller, under its name.
UPSTREAM = frozenset(
    (
        *(
            "SelectingAll",
            "SuccessfulCreate",
            "SuccessfulDelete",
            "FailedCreate",
            "FailedDelete",
            "FailedHistory",
        ),
        *("FailedDaemonPod", "SucceededDaemonPod", "FailedPlacement"),
    )
)
_FAILURES: dict[type, tuple[str, str]] = {
    CreatePod: ("FailedCreate", "creating"),
    DeletePod: ("FailedDelete", "deleting"),
}


def _has_ended(action: Action) -> TypeGuard[DeletePod]:
    return isinstance(action, DeletePod) and action.cause in (
        DeleteCause.FAILED,
        DeleteCause.SUCCEEDED,
    )


def _found(action: DeletePod, about: InvolvedObject) -> KubeEvent:
    pod = f"daemon pod {action.key.namespace}/{action.key.name} on node {action.node}"
    if action.cause is DeleteCause.FAILED:
        return KubeEvent(
            about, "FailedDaemonPod", f"Found failed {pod}, will try to kill it", warning=True
        )
    return KubeEvent(about, "SucceededDaemonPod", f"Found succeeded {pod}, will try to delete it")


def _misfit(node: str, reason: str, about: InvolvedObject) -> KubeEvent:
    return KubeEvent(
        about, "FailedPlacement", f"failed to place pod on {node!r}: {reason}", warning=True
    )


def stands(heard: agents.Standing, about: InvolvedObject) -> KubeEvent | None:
    """The event of how an agent stands, on its DaemonSet: one a rollout and one a trouble, never
    one a pod.
    """
    match heard:
        case agents.CommitArrived(commit=commit, subject=subject):
            return KubeEvent(about, "Applied", f"{short(commit)} {subject}".rstrip())
        case agents.RolloutStarted(commit=commit, revision=revision, nodes=nodes):
            return KubeEvent(
                about,
                "RolloutStarted",
                f"{short(commit)}: revision {revision}; "
                f"{counted(nodes, 'node runs', 'nodes run')} an earlier one",
            )
        case agents.RolloutCompleted(
            commit=commit, revision=revision, nodes=nodes, seconds=seconds
        ):
            message = (
                f"{short(commit)}: revision {revision} runs on {counted(nodes, 'node')}, after "
                f"{seconds:.0f} s"
            )
            return KubeEvent(about, "RolloutCompleted", message)
        case agents.RolloutFailed(commit=commit, revision=revision, message=message):
            return KubeEvent(
                about,
                "RolloutFailed",
                f"{short(commit)}: revision {revision}: {message}",
                warning=True,
            )
        case agents.CoverageLost(losses=losses, of=of):
            return KubeEvent(about, "CoverageLost", losses_in_words(losses, of), warning=True)
        case agents.HealthChanged(before=before, health=health) if before is not None:
            if health.state is HealthState.DEGRADED:
                return KubeEvent(about, "Degraded", health.message, warning=True)
            recovered = health.state is HealthState.HEALTHY and before in (
                HealthState.DEGRADED,
                HealthState.FAILED,
            )
            return KubeEvent(about, "Recovered", health.message) if recovered else None
        case _:
            return None


def losses_in_words(losses: Sequence[Loss], of: int) -> str:
    """`20 of 500 nodes lost their agent without a commit: pool gpu: 20 (label disk=ssd was
    removed)`.
    """
    groups = Counter((loss.pool, loss.words) for loss in losses)
    ordered = sorted(groups.items(), key=lambda group: (-group[1], group[0]))
    said = [
        f"{f'pool {pool}' if pool else 'no pool'}: {count} ({why})"
        for (pool, why), count in ordered[:5]
    ]
    more = f"; {len(ordered) - 5} more groups" if len(ordered) > 5 else ""
    return f"{len(losses)} of {of} nodes lost their agent without a commit: {'; '.join(said)}{more}"


def deployed(heard: Record, state: InvolvedObject) -> KubeEvent | None:
    """The deployer's event for a record, None for what the log alone keeps."""
    match heard:
        case deployer.NewCommit(commit=commit, subject=subject, author=author, rewritten=True):
            message = f"the branch was rewritten; it now is {short(commit)} {subject!r} by {author}"
            return KubeEvent(state, "HistoryRewritten", message, warning=True)
        case deployer.NewCommit(commit=commit, subject=subject, author=author):
            return KubeEvent(state, "NewCommit", f"{short(commit)} {subject!r} by {author}")
        case deployer.CommitRejected(commit=commit, findings=findings):
            return KubeEvent(
                state,
                "CommitRejected",
                f"{short(commit)} is not applied: {report.line_of(findings[0])}",
                warning=True,
            )
        case deployer.SourceVerified(commit=commit, signer=signer):
            return KubeEvent(state, "SourceVerified", f"{short(commit)} is signed by {signer}")
        case deployer.VerificationFailed(message=message):
            return KubeEvent(
                state, "VerificationFailed", f"{message}; the last good commit stays", warning=True
            )
        case deployer.PassEnded(commit=commit, writes=writes, refusals=refusals):
            pruning = [refusal.message for refusal in refusals if refusal.guard in PRUNING]
            if pruning:
                return KubeEvent(state, "PruneRefused", "; ".join(pruning), warning=True)
            whole = KubeEvent(
                state, "Applied", f"{short(commit)}: {counted(writes, 'object')} written"
            )
            return whole if writes and heard.whole else None
        case deployer.NotApplied(refusal=refusal) | deployer.Withheld(refusal=refusal) if (
            refusal.guard not in PRUNING
        ):
            reason = guards.of(refusal.guard).reason
            return (
                KubeEvent(state, reason, refusal.message, warning=guards.of(refusal.guard).stuck)
                if reason
                else None
            )
        case deployer.SourceChanged():
            return _source(heard, state)
        case deployer.DriftFact(object=key, drifted=drifted, words=words):
            about = (
                InvolvedObject(
                    DAEMONSET.api_version, key.kind, key.namespace, key.name, drifted.uid
                )
                if key.is_daemonset
                else state
            )
            name = "" if key.is_daemonset else f"{key}: "
            return KubeEvent(
                about,
                type(heard).__name__,
                f"{name}{words}",
                warning=not isinstance(heard, deployer.DriftCorrected),
            )
        case deployer.PassFailed(message=message):
            return KubeEvent(state, "PassFailed", message, warning=True)
        case _:
            return _steered(heard, state)


def _steered(heard: Record, state: InvolvedObject) -> KubeEvent | None:
    match heard:
        case requests.CommitHeld(commit=commit, reason=reason):
            return KubeEvent(state, "CommitHeld", f"{commit[:12]} is not applied: {reason}")
        case requests.Suspended(commit=commit, changes=changes):
            return KubeEvent(
                state,
                "Suspended",
                f"{counted(changes, 'change')} of {(commit or '')[:12]} not applied",
            )
        case requests.Resumed():
            return KubeEvent(state, "Resumed", "changes are written again")
        case _:
            return None


def _source(heard: deployer.SourceChanged, state: InvolvedObject) -> KubeEvent | None:
    """Only what no other event reports: a commit that is applied in part, and the end of trouble."""
    reason, message = source_status.EFFECTS[heard.status.condition].reason, heard.status.message
    match heard.status.condition:
        case Condition.PARTLY_APPLIED:
            return KubeEvent(state, reason, message, warning=True)
        case Condition.SUSPENDED if (
            heard.status.agents_suspended
        ):  # the record Suspended reports a whole repository
            return KubeEvent(state, reason, message)
        case Condition.SYNCED if heard.recovered:
            return KubeEvent(state, reason, message)
        case _:
            return None


@dataclass(frozen=True, slots=True)
class EventSeries:
    """An event to be written: anew where `count` is 1, else the same again. `first` and `last` are
    seconds since 1970.

    `id` is its own, and stays the same as it comes again.
    """

    told: KubeEvent
    id: str
    count: int
    first: float
    last: float


@dataclass(slots=True)
class _Alike:
    """The different messages of one reason about one object, and when the last one came."""

    last: float
    messages: set[str] = field(default_factory=set)


@dataclass(slots=True)
class EventCorrelator:
    """Joins what is told again and again, and cuts short who talks too much."""

    _alike: dict[tuple[InvolvedObject, str], _Alike] = field(default_factory=dict)
    _entries: dict[KubeEvent, EventSeries] = field(default_factory=dict)
    _full_at: dict[InvolvedObject, float] = field(default_factory=dict)

    def take(self, told: KubeEvent, now: float) -> EventSeries | None:
        """What to write; None where enough was told about the object."""
        alike = self._alike.get((told.about, told.reason))
        if alike is None or now - alike.last > ALIKE_WITHIN:
            alike = _keep(self._alike, (told.about, told.reason), _Alike(now))
        alike.last = now
        known = told
        if len(alike.messages) >= ALIKE and told.message not in alike.messages:
            known, told = (
                replace(told, message=COMBINED),
                replace(told, message=COMBINED + told.message),
            )
        else:
            alike.messages.add(told.message)
        before = self._entries.get(known)
        if before is None:
            entry = EventSeries(
                told, hashlib.sha256(f"{known}{now}".encode()).hexdigest()[:16], 1, now, now
            )
        else:
            entry = replace(before, told=told, count=before.count + 1, last=now)
        _keep(self._entries, known, entry)
        return entry if self._may_talk(told.about, now) else None

    def _may_talk(self, about: InvolvedObject, now: float) -> bool:
        full_at = max(self._full_at.get(about, now), now) + REFILL
        if full_at - now > BURST * REFILL:
            return False
        _keep(self._full_at, about, full_at)
        return True


K = TypeVar("K")
V = TypeVar("V")


def _keep(memory: dict[K, V], key: K, value: V) -> V:
    """Remembers it, and forgets what was remembered first when there is too much."""
    memory[key] = value
    if len(memory) > REMEMBERED:
        del memory[next(iter(memory))]
    return value
