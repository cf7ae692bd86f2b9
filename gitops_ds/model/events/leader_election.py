"""What is told of the election among replicas."""

from __future__ import annotations

from dataclasses import dataclass

from gitops_ds.model.events.base import Record


@dataclass(frozen=True, slots=True)
class Leading(Record):
    """Something about a lease, told by the replica `me`."""

    namespace: str
    lease: str
    me: str


@dataclass(frozen=True, slots=True)
class StandsBy(Leading):
    """It begins as one that does not lead."""


@dataclass(frozen=True, slots=True)
class LeaderElected(Leading):
    """It leads from now on."""


@dataclass(frozen=True, slots=True)
class LeaderLost(Leading):
    """It leads no more, and why."""

    why: str


@dataclass(frozen=True, slots=True)
class LeaderSeen(Leading):
    """Another leads: `holder`."""

    holder: str


@dataclass(frozen=True, slots=True)
class LeaseFailed(Leading):
    """The lease can't be read or written."""

    message: str
