"""Who names which objects, among the deployers of one service: Git comes before templates in the
cluster, and they never fight.

Each deployer tells what it names before it plans, and asks what the others name. What one leaves
and another names is handed over: it is not deleted in between. Kept in memory alone: after a start
nobody deletes or takes anything before all have told once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from gitops_ds.model.objects import Key
from gitops_ds.plan.options import OtherOwners


class Rank(IntEnum):
    """Who wins where two name the same object: the lower one."""

    GIT = 0
    TEMPLATES = 1


@dataclass(slots=True, eq=False)
class Claimant:
    """One deployer's view of the claims."""

    claims: Claims
    owner: str
    rank: Rank
    stir: Callable[[], None]
    keys: frozenset[Key] | None = None

    def name(self, keys: Iterable[Key]) -> None:
        """Tells what this deployer names; the others look again where that has changed."""
        named = frozenset(keys)
        if named == self.keys:
            return
        self.keys = named
        for other in self.claims.others(self):
            other.stir()

    @property
    def neighbours(self) -> OtherOwners:
        """What a plan of this deployer has to know of the others."""
        others = self.claims.others(self)
        told = [(other.owner, other.rank, other.keys) for other in others if other.keys is not None]
        complete = len(told) == self.claims.expected(self.rank)
        return OtherOwners(
            ahead={key: owner for owner, rank, keys in told if rank < self.rank for key in keys},
            heirs=frozenset().union(*(keys for _, _, keys in told)),
            behind=frozenset(owner for owner, _, _ in told) if complete else frozenset(),
            complete=complete,
        )


@dataclass(slots=True, eq=False)
class Claims:
    """All deployers of a service; `numbers` says how many there will be of each rank."""

    numbers: Mapping[Rank, int] = field(default_factory=dict)
    members: list[Claimant] = field(default_factory=list)

    def join(self, owner: str, rank: Rank, stir: Callable[[], None]) -> Claimant:
        """Takes in a deployer; `stir` makes it look again."""
        member = Claimant(self, owner, rank, stir)
        self.members.append(member)
        return member

    def others(self, member: Claimant) -> list[Claimant]:
        """Those of another rank: between two repositories the owner label alone decides."""
        return [other for other in self.members if other.rank is not member.rank]

    def expected(self, rank: Rank) -> int:
        """How many others of another rank there will be."""
        return sum(number for other, number in self.numbers.items() if other is not rank)
