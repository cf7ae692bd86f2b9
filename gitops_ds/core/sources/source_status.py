"""The status of a followed repository: its newest commit, the applied one, and the relation between
them as a condition.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from gitops_ds.core.objects import CommitId, Key


def other_service(namespace: str = "") -> str:
    """That another service follows the repository: with the same state, or with one in a
    namespace.
    """
    if namespace:
        state = f"its state in namespace {namespace}: end one of the two"
    else:
        state = "the same state: end one of the two, or run both with leader election"
    return f"another service follows this repository with {state}"


class Condition(StrEnum):
    """The relation of the cluster to the newest commit of a repository."""

    SYNCED = "Synced"
    UNKNOWN = "Unknown"
    PROGRESSING = "Progressing"
    UNREACHABLE = "Unreachable"
    FAILED = "Failed"
    REJECTED = "Rejected"
    REFUSED = "Refused"
    UNVERIFIED = "Unverified"
    REWOUND = "Rewound"
    PARTLY_APPLIED = "PartlyApplied"
    HELD = "Held"
    DELETIONS_HELD = "DeletionsHeld"
    WAITING = "Waiting"
    SUSPENDED = "Suspended"


_REFUSED = (Condition.REJECTED, Condition.REFUSED, Condition.UNVERIFIED)


class SourceStatus(msgspec.Struct, frozen=True):
    """The status of one repository on one cluster. Times are in seconds since 1970.

    `id` is the owner's id. `newest` is the newest observed commit of the branch, `applied` the last
    one that was applied as a whole. `since`: the start of the condition. `looked`: the last
    response of Git, 0 for none. `written`: when this was saved. `active`: a service follows the
    repository; False after it has ended. `beside`: when another service saved its status of the
    same repository last, 0 if none does; `elsewhere`: the namespace of the state of another service
    that follows it, else empty. `refused` are the DaemonSets whose part of the newest
    commit is not applied.
    """

    id: str = ""
    repository: str = ""
    branch: str = ""
    condition: Condition = Condition.UNKNOWN
    message: str = ""
    newest: CommitId | None = None
    applied: CommitId | None = None
    held: tuple[str, ...] = ()
    suspended: bool = False
    since: float = 0.0
    looked: float = 0.0
    written: float = 0.0
    active: bool = True
    beside: float = 0.0
    elsewhere: str = ""
    refused: tuple[Key, ...] = ()

    @property
    def warning(self) -> str:
        """That another service follows the repository; empty if none does."""
        is_beside = self.active and (self.elsewhere or self.beside)
        return other_service(self.elsewhere) if is_beside else ""

    @property
    def is_last_look(self) -> bool:
        """Whether Git has not answered after `looked`, also since the status was saved."""
        return not self.active or self.condition is Condition.UNREACHABLE

    def refuses(self, key: Key) -> bool:
        """Whether the newest commit is not applied to a DaemonSet: as a whole, or to it."""
        return self.active and (self.condition in _REFUSED or key in self.refused)

    @property
    def agents_suspended(self) -> bool:
        """Whether the condition is Suspended because of single agents; the others match the
        commit.
        """
        return self.condition is Condition.SUSPENDED and not self.suspended

    @property
    def agents_synced(self) -> bool:
        """Whether the agents in Git match the newest commit, except single ones."""
        return (
            self.condition in (Condition.SYNCED, Condition.DELETIONS_HELD) or self.agents_suspended
        )


class Effect(msgspec.Struct, frozen=True):
    """The effect of a condition on outputs.

    `sync` is the SYNC of the repository's agents. `tone` is that of the page: good, warn, bad or
    plain. `level` is the log's. `reason` is that of the Kubernetes event. `ready`: whether /readyz
    with `listen.readiness: synced` answers 200.
    """

    sync: str
    tone: str
    level: str
    reason: str
    ready: bool = False


EFFECTS: Mapping[Condition, Effect] = {
    Condition.SYNCED: Effect("Synced", "good", "info", "Synced", ready=True),
    Condition.UNKNOWN: Effect("Unknown", "plain", "info", ""),
    Condition.PROGRESSING: Effect("OutOfSync", "plain", "info", ""),
    Condition.UNREACHABLE: Effect("Unknown", "bad", "warning", "PassFailed"),
    Condition.FAILED: Effect("Unknown", "bad", "warning", "PassFailed"),
    Condition.REJECTED: Effect("OutOfSync", "bad", "error", "CommitRejected"),
    Condition.REFUSED: Effect("OutOfSync", "bad", "error", "PassFailed"),
    Condition.UNVERIFIED: Effect("OutOfSync", "bad", "error", "VerificationFailed"),
    Condition.REWOUND: Effect("OutOfSync", "bad", "error", "PassFailed"),
    Condition.PARTLY_APPLIED: Effect("OutOfSync", "bad", "warning", "PartlyApplied"),
    Condition.HELD: Effect("Held", "warn", "warning", "CommitHeld", ready=True),
    Condition.DELETIONS_HELD: Effect("Held", "warn", "warning", "PruneRefused", ready=True),
    Condition.WAITING: Effect("OutOfSync", "plain", "info", "CommitWaits", ready=True),
    Condition.SUSPENDED: Effect("Suspended", "warn", "warning", "Suspended", ready=True),
}
