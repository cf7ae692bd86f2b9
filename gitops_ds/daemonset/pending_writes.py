"""Own writes, remembered until the watch has passed them: what makes it safe to decide on a cache
that lags behind.

The reply to a write stands in for the object until its watch shows that version. So a pod just
created is there, one just deleted is terminating, and a status just written is known.

After a restored etcd the version of a reply may never come, and its object be lost. A list is never
older than what was written
before it was asked for; so a reply from before, of a later version than the list, is of a world
that is no more and is forgotten.
Any other reply lapses after five minutes.
https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-get-and-list
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

LAPSES_AFTER = 300.0  # seconds


@dataclass(frozen=True, slots=True)
class _WriteReply(Generic[T]):
    value: T
    version: int
    at: float


class PendingWrites(Generic[T]):
    """The replies of one kind of object by UID, and how far its watch has come."""

    def __init__(self) -> None:
        self._passed = 0
        self._replies: dict[str, _WriteReply[T]] = {}
        self._earlier: dict[str, _WriteReply[T]] = {}

    def wrote(self, uid: str, value: T, version: str, now: float) -> None:
        """Keeps a reply, unless the watch has shown as much already."""
        number = number_of(version)
        known = self._replies.get(uid)
        if number > self._passed and (known is None or known.version <= number):
            self._replies[uid] = _WriteReply(value, number, now)

    def advance(self, version: str) -> None:
        """The watch has come to this version."""
        self._passed = max(self._passed, number_of(version))
        self._keep(lambda reply: reply.version > self._passed)

    def asks(self) -> None:
        """The cluster is asked for its version, or for a list."""
        self._earlier = dict(self._replies)

    def answered(self, version: str) -> bool:
        """That version was the answer; whether replies were forgotten that its world doesn't have."""
        lost = {
            uid: reply for uid, reply in self._earlier.items() if reply.version > number_of(version)
        }
        before, self._earlier = len(self._replies), {}
        self._replies = {
            uid: reply for uid, reply in self._replies.items() if lost.get(uid) is not reply
        }
        return len(self._replies) < before

    def reset(self, version: str) -> None:
        """A new list was read, perhaps of an older world."""
        self.answered(version)
        self._passed = 0
        self.advance(version)

    def lapse(self, now: float) -> None:
        """Forgets replies that are too old, or from a future, after the clock was put back."""
        self._keep(lambda reply: 0 <= now - reply.at < LAPSES_AFTER)

    def get(self, uid: str) -> T | None:
        """The reply that stands in for this object."""
        reply = self._replies.get(uid)
        return None if reply is None else reply.value

    def is_own(self, uid: str, version: str) -> bool:
        """Whether this very version of the object is our own write, still waited for."""
        reply = self._replies.get(uid)
        return reply is not None and reply.version == number_of(version)

    def __iter__(self) -> Iterator[tuple[str, T]]:
        """All replies that stand in, by UID."""
        return ((uid, reply.value) for uid, reply in self._replies.items())

    def _keep(self, test: Callable[[_WriteReply[T]], bool]) -> None:
        if self._replies:
            self._replies = {uid: reply for uid, reply in self._replies.items() if test(reply)}


def number_of(version: str) -> int:
    """A resourceVersion as a number; 0 for one that is none, so that it never holds anything up."""
    return int(version) if version.isascii() and version.isdigit() else 0
