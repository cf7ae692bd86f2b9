"""How often Git is asked without a reason: rarely while webhooks tell of every commit, else as the
settings say.

Webhooks are believed when one came with a commit, and no longer when a commit was found that none
told of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

RARER, RAREST = 10.0, 3600.0  # times the interval, but at most once in so many seconds is enough
# seconds within which a webhook and a commit belong together, whichever comes first
TOGETHER = 120.0


@dataclass(slots=True)
class Polling:
    """Of one repository. Times are seconds of any clock that only goes forward; `interval` is the
    one of the settings.
    """

    interval: float
    clock: Callable[[], float]
    believed: bool = field(default=False, init=False)
    _hooked: float | None = field(default=None, init=False)
    _found: float | None = field(default=None, init=False)
    _looked: float | None = field(default=None, init=False)

    @property
    def pause(self) -> float:
        """Seconds between two polls, as things stand."""
        return (
            max(self.interval, min(self.interval * RARER, RAREST))
            if self.believed
            else self.interval
        )

    def due(self) -> bool:
        """Whether a tick of the schedule is to be taken; then the next ones wait."""
        now = self.clock()
        # A tick may come a little early: that of the interval itself must not be missed for it.
        if (
            self.believed
            and self._looked is not None
            and now - self._looked < self.pause - self.interval / 2
        ):
            return False
        self._looked = now
        return True

    def hooked(self) -> None:
        """A webhook told of a push."""
        self._hooked = self.clock()
        if self._found is not None and self._hooked - self._found <= TOGETHER:
            self.believed = True
            self._hooked = self._found = None

    def found(self) -> None:
        """A new commit was seen."""
        self._found = self.clock()
        self.believed = self._hooked is not None and self._found - self._hooked <= TOGETHER
        if self.believed:  # a webhook announces one commit: the next one needs a webhook of its own
            self._hooked = self._found = None
