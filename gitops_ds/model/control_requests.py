"""Requests to the service: annotations of the state, and pushes."""

from __future__ import annotations

import msgspec

from gitops_ds.model.objects import CommitId


class Steering(msgspec.Struct, frozen=True):
    """The requests in the annotations of a state's ConfigMap.

    `requested` is the value of a pending request; `held` are commits on hold, by their first seven
    or more digits; `approved` is the hash of a plan. `pushed` is the time at which another replica
    received a push, and its commit. `released` are commits that need not wait for other clusters.
    """

    requested: str = ""
    suspended: bool = False
    approved: str = ""
    held: tuple[str, ...] = ()
    pushed: str = ""
    released: tuple[str, ...] = ()

    def releases(self, commit: CommitId) -> bool:
        """Whether the commit need not wait for other clusters."""
        return any(commit.startswith(released) for released in self.released)

    def holds(self, commit: CommitId) -> bool:
        """Whether the commit is on hold."""
        return any(commit.startswith(held) for held in self.held)


class Push(msgspec.Struct, frozen=True):
    """The notification of a push to one repository. `commit` only limits how long to poll for it;
    it never selects the revision.
    """

    commit: CommitId | None = None
