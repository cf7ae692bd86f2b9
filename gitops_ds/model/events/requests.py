"""Events about requests from outside: webhooks, holds, suspension, requested reconciliations."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gitops_ds.model.events.base import Record
from gitops_ds.model.objects import CommitId


@dataclass(frozen=True, slots=True)
class Asked(Record):
    """A fact about what was asked from outside."""


class HookResult(StrEnum):
    """What became of a request to the webhook; the label of its metric."""

    ACCEPTED = "accepted"
    PING = "ping"
    UNAUTHORIZED = "unauthorized"
    REPLAYED = "replayed"
    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    TOO_SLOW = "too_slow"
    LIMITED = "limited"


@dataclass(frozen=True, slots=True)
class HookHeard(Asked):
    """A request came to the webhook. `forge` is empty where nobody proved to be one; `woken` are
    ids of states.
    """

    result: HookResult
    forge: str = ""
    woken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PassedOn(Asked):
    """Another replica was told of a push, and this one leads."""

    commit: CommitId | None


@dataclass(frozen=True, slots=True)
class CommitHeld(Asked):
    """The branch is at a commit that is not to be applied; the last good one stays."""

    commit: CommitId
    reason: str


@dataclass(frozen=True, slots=True)
class Suspended(Asked):
    """Nothing is written for the repository; so many changes of the commit wait. Told when that
    changes.
    """

    commit: CommitId | None
    changes: int


@dataclass(frozen=True, slots=True)
class Resumed(Asked):
    """The repository is no longer suspended."""


@dataclass(frozen=True, slots=True)
class Handled(Asked):
    """A request was answered: what it asked under, and how the pass ended."""

    request: str
    outcome: str
