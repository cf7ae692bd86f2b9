"""When nodes got their startup taints again, and how often they were removed."""

from __future__ import annotations

import msgspec

from gitops_ds.model.live import Node
from gitops_ds.model.rate_limits import Backoff

FORGOTTEN_AFTER = 600.0  # seconds after a removal; later ones count as the first
CONTESTED_AT = 3  # removals in a row; the first ones may be races
_PAUSES = Backoff(first=1.0, longest=60.0)


class _Removals(msgspec.Struct, frozen=True):
    uid: str
    at: float
    count: int


class TaintHistory:
    """The startup taints of nodes that another client adds again, as far as this process saw it."""

    def __init__(self) -> None:
        self._untainted: dict[str, str] = {}  # UIDs by name
        self._tainted_at: dict[str, float] = {}
        self._removals: dict[str, _Removals] = {}

    def saw(self, node: Node, is_tainted: bool, now: float) -> None:
        """Notes a state of a node."""
        name, uid = node.name, node.uid
        if not is_tainted:
            self._untainted[name] = uid
            return
        known = self._untainted.pop(name, "")
        if known and (known != uid or self._of(name, uid, now) is None):
            self._tainted_at.pop(name, None)
        if known == uid:
            self._tainted_at.setdefault(name, now)

    def forget(self, name: str) -> None:
        """Forgets a node that is gone."""
        for memory in (self._untainted, self._tainted_at, self._removals):
            memory.pop(name, None)

    def tainted_at(self, name: str) -> float:
        """When a node without startup taints got one, for the first time while it was removed again
        and again, in seconds since 1970; 0 if it came with it.
        """
        return self._tainted_at.get(name, 0.0)

    def added(self, name: str) -> None:
        """Notes that the service added a startup taint itself."""
        self._removals.pop(name, None)

    def removed(self, name: str, uid: str, now: float) -> None:
        """Notes that the startup taints of a node were removed."""
        earlier = self._of(name, uid, now)
        self._removals[name] = _Removals(uid, now, earlier.count + 1 if earlier else 1)

    def removable_at(self, name: str, uid: str, now: float) -> float:
        """From when the startup taints of a node may be removed: less and less often while another
        client adds them again.
        """
        earlier = self._of(name, uid, now)
        return earlier.at + _PAUSES.delay(earlier.count) if earlier else now

    def is_contested(self, name: str, uid: str, now: float) -> bool:
        """Whether another client adds the taint of a node again and again."""
        earlier = self._of(name, uid, now)
        return earlier is not None and earlier.count >= CONTESTED_AT

    def _of(self, name: str, uid: str, now: float) -> _Removals | None:
        earlier = self._removals.get(name)
        is_recent = earlier is not None and now < earlier.at + FORGOTTEN_AFTER
        return earlier if is_recent and earlier is not None and earlier.uid == uid else None
