"""What a plan skips, why, and the effect on the commit, the next reconciliation, events and
notifications; and the drift policy.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from gitops_ds.core.objects import Key


class SkipEffect(msgspec.Struct, frozen=True):
    """The effect of a skipped object.

    `event_reason` is that of the Kubernetes Event on the state; empty if another Event reports it.
    `fails_commit`: an object of the commit is not in the cluster, so the commit is applied in part.
    `keeps_commit_good`: the commit still counts as the last good one, because waiting or another
    owner is not its fault. `retryable`: the reason may end without a change of Git or the watched
    objects. `deferrable`: the API server refused the object, and it is sent again with back-off.
    `prunes`: objects that left Git are kept. `notifies`: people are notified. `suspended`: the
    change waits until its agent is resumed. `approvable`: the approval of the plan's hash overrides
    it. `quotes_values`: the message quotes the API server or field values.
    """

    event_reason: str = ""
    fails_commit: bool = False
    keeps_commit_good: bool = False
    retryable: bool = False
    deferrable: bool = False
    prunes: bool = False
    notifies: bool = True
    suspended: bool = False
    approvable: bool = False
    quotes_values: bool = False


_NOT_APPLIED = "NotApplied"


class SkipReason(StrEnum):
    """The reason as plans, metrics and Events name it, with its effect."""

    effect: SkipEffect

    def __new__(cls, value: str, effect: SkipEffect) -> SkipReason:
        """A string with its effect."""
        reason = str.__new__(cls, value)
        reason._value_ = value
        reason.effect = effect
        return reason

    REFUSED = (
        "refused",
        SkipEffect(
            _NOT_APPLIED, fails_commit=True, retryable=True, quotes_values=True, deferrable=True
        ),
    )
    CONFLICT = (
        "conflict",
        SkipEffect(
            "FieldConflict", fails_commit=True, retryable=True, quotes_values=True, deferrable=True
        ),
    )
    UNKNOWN_KIND = "unknown-kind", SkipEffect("UnknownKind", fails_commit=True, retryable=True)
    NO_NAMESPACE = "no-namespace", SkipEffect("NamespaceMissing", fails_commit=True)
    NOT_ALLOWED = "not-allowed", SkipEffect("NotAllowed", fails_commit=True)
    QUARANTINED = "quarantined", SkipEffect("Quarantined", fails_commit=True)
    NAMED_IN_GIT = "named-in-git", SkipEffect("NamedTwice", fails_commit=True)
    NAMED_TWICE = "named-twice", SkipEffect("NamedTwice", fails_commit=True)
    IMPERSONATION = "impersonation", SkipEffect("ImpersonationRefused", fails_commit=True)
    CROSS_NAMESPACE = "cross-namespace", SkipEffect("CrossNamespaceRefused", fails_commit=True)
    LOSES_NODES = "loses-nodes", SkipEffect(_NOT_APPLIED, fails_commit=True, approvable=True)
    UNKNOWN_NODES = "unknown-nodes", SkipEffect(_NOT_APPLIED, fails_commit=True)
    OWNED_BY_OTHER = (
        "owned-by-other",
        SkipEffect("OwnedByOther", fails_commit=True, keeps_commit_good=True),
    )
    WAITS = "waits", SkipEffect(fails_commit=True, keeps_commit_good=True, notifies=False)
    # ended by an event of the target revision, not by time
    FINISH_FIRST = (
        "finish-first",
        SkipEffect(fails_commit=True, keeps_commit_good=True, notifies=False),
    )
    NO_TEXT = "no-text", SkipEffect(_NOT_APPLIED, keeps_commit_good=True)
    HELD = "held", SkipEffect(keeps_commit_good=True, notifies=False)
    SUSPENDED = "suspended", SkipEffect(keeps_commit_good=True, notifies=False, suspended=True)
    CONTESTED = (
        "contested",
        SkipEffect(keeps_commit_good=True, notifies=False),
    )  # DriftContested reports it
    DRIFT = (
        "drift",
        SkipEffect(keeps_commit_good=True, notifies=False, quotes_values=True),
    )  # DriftDetected and DriftHeld report it
    EMPTY_RENDER = (
        "empty-render",
        SkipEffect("PruneRefused", keeps_commit_good=True, prunes=True, approvable=True),
    )
    SHARE_OF_NODES = (
        "share-of-nodes",
        SkipEffect("PruneRefused", keeps_commit_good=True, prunes=True, approvable=True),
    )
    TOO_MANY_DELETES = (
        "too-many-deletes",
        SkipEffect("PruneRefused", keeps_commit_good=True, prunes=True, approvable=True),
    )
    IN_USE = "in-use", SkipEffect("PruneRefused", keeps_commit_good=True, prunes=True)
    NOT_EMPTY = (
        "not-empty",
        SkipEffect(
            "PruneRefused", keeps_commit_good=True, prunes=True, retryable=True, approvable=True
        ),
    )
    PRUNE_OFF = "prune-off", SkipEffect(keeps_commit_good=True)  # intended by the setting
    PRUNE_DISABLED = "prune-disabled", SkipEffect(keeps_commit_good=True)
    UNREAD = "unread", SkipEffect("PruneRefused", keeps_commit_good=True, prunes=True)
    # ended by the end of a staged rollout, a change of the DaemonSet
    USED_BY_ROLLOUT = "used-by-rollout", SkipEffect(keeps_commit_good=True, notifies=False)
    USED_BY_PODS = (
        "used-by-pods",
        SkipEffect(keeps_commit_good=True, notifies=False, retryable=True),
    )
    NOT_IN_INVENTORY = "not-in-inventory", SkipEffect("PruneRefused", keeps_commit_good=True)


PRUNING = frozenset(reason for reason in SkipReason if reason.effect.prunes)
STILL_USED = frozenset((SkipReason.USED_BY_ROLLOUT, SkipReason.USED_BY_PODS))
# An object left Git and is kept, by a guard, by a setting, or until nothing uses it.
LEFT_GIT = (PRUNING | STILL_USED) | {
    SkipReason.PRUNE_OFF,
    SkipReason.PRUNE_DISABLED,
    SkipReason.NOT_IN_INVENTORY,
}


class Skipped(msgspec.Struct, frozen=True):
    """A part of the plan that is not applied, its reason, and a message with the advice. `key` is
    None for the plan as a whole; then `held` are the objects that wait.
    """

    reason: SkipReason
    message: str
    key: Key | None = None
    held: tuple[Key, ...] = ()


class DriftPolicy(StrEnum):
    """The policy for a change that was made in the cluster (annotation `gitops-ds.io/drift`)."""

    CORRECT = "correct"
    REPORT = "report"
    HOLD = "hold"
