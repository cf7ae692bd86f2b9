"""The claims of the deployers of one service to objects: Git has priority over templates in the
cluster, and no object has two writers. Pure.

Each deployer publishes its objects before it plans, and reads those of the others. An object that
one deployer drops and another one claims is handed over without a deletion. Claims are in memory
only: after a start no deployer deletes or takes over an object before all have published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from gitops_ds.core.objects import Key
from gitops_ds.kube.client.owned_bodies import OwnedBodies
from gitops_ds.ownership.options import OtherOwners


class Rank(IntEnum):
    """The priority of deployers that claim the same object: the lower rank takes precedence."""

    GIT = 0
    TEMPLATES = 1


@dataclass(slots=True, eq=False)
class Claimant:
    """One deployer and its claims. `on_change` is called when a claim of another one changes."""

    claims: Claims
    owner: str
    rank: Rank
    on_change: Callable[[], None]
    keys: frozenset[Key] | None = None

    def publish(self, keys: Iterable[Key]) -> None:
        """Publishes the objects of this deployer; if they changed, the others reconcile."""
        claimed = frozenset(keys)
        if claimed == self.keys:
            return
        self.keys = claimed
        for other in self.claims.others(self):
            other.on_change()

    @property
    def other_owners(self) -> OtherOwners:
        """The claims of the others, as a plan of this deployer requires them."""
        others = self.claims.others(self)
        claims = [
            (other.owner, other.rank, other.keys) for other in others if other.keys is not None
        ]
        complete = len(claims) == self.claims.expected(self.rank)
        return OtherOwners(
            ahead={key: owner for owner, rank, keys in claims if rank < self.rank for key in keys},
            heirs=frozenset().union(*(keys for _, _, keys in claims)),
            behind=frozenset(owner for owner, _, _ in claims) if complete else frozenset(),
            complete=complete,
        )


@dataclass(slots=True, eq=False)
class Claims:
    """All deployers of a service; `numbers` is the final number of deployers by rank, `bodies` are
    the objects of all.
    """

    numbers: Mapping[Rank, int] = field(default_factory=dict)
    members: list[Claimant] = field(default_factory=list)
    bodies: OwnedBodies = field(default_factory=OwnedBodies)

    def join(self, owner: str, rank: Rank, on_change: Callable[[], None]) -> Claimant:
        """Adds a deployer, in place of an earlier one of the same owner; `on_change` requests a
        reconciliation of it.
        """
        member = Claimant(self, owner, rank, on_change)
        self.members = [other for other in self.members if other.owner != owner] + [member]
        return member

    def others(self, member: Claimant) -> list[Claimant]:
        """The deployers of another rank: between repositories only the owner label counts."""
        return [other for other in self.members if other.rank is not member.rank]

    def expected(self, rank: Rank) -> int:
        """The final number of deployers of another rank."""
        return sum(number for other, number in self.numbers.items() if other is not rank)
