"""What people and forges ask of the service from outside, and the facts that it tells of that."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gitops_ds.model.objects import CommitId
from gitops_ds.model.record import Record


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
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class HookHeard(Record):
    """A request came to the webhook. `forge` is empty where nobody proved to be one; `woken` are ids of states."""

    result: HookResult
    forge: str = ""
    woken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Push:
    """What a delivery tells one repository: look now. `commit` is a hint for how long to look, never for what to take."""

    commit: CommitId | None = None
