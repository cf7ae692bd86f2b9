"""Requests to the service from outside: annotations of the state, pushes."""

from __future__ import annotations

from dataclasses import dataclass

from gitops_ds.model.objects import CommitId


@dataclass(frozen=True, slots=True)
class Steering:
    """The annotations of a state's ConfigMap that ask for something.

    `requested` is the value of a request that is not answered yet; `held` are commits that are not
    to be applied, by their first seven or more digits; `approved` is the hash of a plan. `pushed`
    is when another replica was told of a push, and of which commit.
    """

    requested: str = ""
    suspended: bool = False
    approved: str = ""
    held: tuple[str, ...] = ()
    pushed: str = ""

    def holds(self, commit: CommitId) -> bool:
        """Whether the commit is not to be applied."""
        return any(commit.startswith(held) for held in self.held)


@dataclass(frozen=True, slots=True)
class Push:
    """What a delivery tells one repository: look now. `commit` is a hint for how long to look,
    never for what to take.
    """

    commit: CommitId | None = None
