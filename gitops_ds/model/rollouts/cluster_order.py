"""The order in which the clusters of a repository apply a commit: `after` of clusters/NAME.yaml."""

from __future__ import annotations

import msgspec

WITHIN = 86_400.0  # seconds


class ClusterBehind(msgspec.Struct, frozen=True):
    """A cluster that waits for another one, and the soak that it requires there, in seconds."""

    name: str
    soak: float = 0.0


class ClusterOrder(msgspec.Struct, frozen=True):
    """The place of one cluster in the order.

    `after` are the clusters before it; each must stay healthy with a commit for `soak` seconds. A
    commit that waits for more than `within` seconds is overdue. `wave` counts from 1, 0 in a cycle;
    `waves` is the number of waves of the repository, 0 without an order. `behind` are the clusters
    that wait for this one.
    """

    after: tuple[str, ...] = ()
    soak: float = 0.0
    within: float = WITHIN
    wave: int = 0
    waves: int = 0
    behind: tuple[ClusterBehind, ...] = ()

    @property
    def exists(self) -> bool:
        """Whether any cluster of the repository waits for another one."""
        return self.waves > 0


NO_ORDER = ClusterOrder()
