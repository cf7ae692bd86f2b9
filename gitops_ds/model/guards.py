"""Every guard that leaves something of a plan undone, with what follows from it for the commit, the
next pass, events and news.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Guard:
    """What a refusal by this guard means.

    `fails`: something that the commit wants is not in the cluster, so the commit is applied in
    part. `good`: the commit counts as the last good one all the same, because waiting or another
    owner is no fault of it. `retried`: it may end though neither Git nor what is watched changes.
    `reason` is that of the Kubernetes event on the state; empty where another event reports it.
    `prunes`: it keeps objects that left Git. `stuck`: people are notified. `suspended`: the change
    waits until its agent is resumed.
    """

    reason: str = ""
    fails: bool = False
    good: bool = False
    retried: bool = False
    prunes: bool = False
    stuck: bool = True
    suspended: bool = False


_NOT_APPLIED = "NotApplied"

GUARDS: Mapping[str, Guard] = {
    "refused": Guard(_NOT_APPLIED, fails=True, retried=True),
    "conflict": Guard("FieldConflict", fails=True, retried=True),
    "unknown-kind": Guard("UnknownKind", fails=True, retried=True),
    "no-namespace": Guard("NamespaceMissing", fails=True),
    "not-allowed": Guard("NotAllowed", fails=True),
    "quarantined": Guard("Quarantined", fails=True),
    "named-in-git": Guard("NamedTwice", fails=True),
    "named-twice": Guard("NamedTwice", fails=True),
    "impersonation": Guard("ImpersonationRefused", fails=True),
    "cross-namespace": Guard("CrossNamespaceRefused", fails=True),
    "loses-nodes": Guard(_NOT_APPLIED, fails=True),
    "unknown-nodes": Guard(_NOT_APPLIED, fails=True),
    "owned-by-other": Guard("OwnedByOther", fails=True, good=True),
    "waits": Guard(fails=True, good=True, stuck=False),
    "no-text": Guard(_NOT_APPLIED, good=True),
    "held": Guard(good=True, stuck=False),
    "suspended": Guard(good=True, stuck=False, suspended=True),
    "contested": Guard(good=True, stuck=False),  # DriftContested reports it
    "drift": Guard(good=True, stuck=False),  # DriftDetected and DriftHeld report it
    "empty-render": Guard("PruneRefused", good=True, prunes=True),
    "share-of-nodes": Guard("PruneRefused", good=True, prunes=True),
    "too-many-deletes": Guard("PruneRefused", good=True, prunes=True),
    "in-use": Guard("PruneRefused", good=True, prunes=True),
    "not-empty": Guard("PruneRefused", good=True, prunes=True, retried=True),
    "prune-off": Guard(good=True),  # the setting's own effect
    "prune-disabled": Guard(good=True),
    "not-in-inventory": Guard("PruneRefused", good=True),
}
PRUNING = frozenset(name for name, guard in GUARDS.items() if guard.prunes)


def of(name: str) -> Guard:
    """The guard of that name; a name that is not in the table counts as a refusal of the API
    server.
    """
    return GUARDS.get(name, GUARDS["refused"])
