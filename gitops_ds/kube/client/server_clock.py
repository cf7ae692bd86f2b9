"""The time of the API server, for the decisions about its objects.

Objects have the times of the API server and of the kubelets. A clock of this machine that is ahead
of them ends each soak at once, and one that is behind never does; no replica may decide by that.
Each response has the time of the API server in whole seconds, as the header Date:
https://www.rfc-editor.org/rfc/rfc9110#section-6.6.1
"""

from __future__ import annotations

from collections.abc import Callable
from email.utils import parsedate_to_datetime
from functools import lru_cache

# Seconds that the clock of this machine may be ahead or behind, as clocks that are synchronized.
TOLERANCE = 10.0


class ServerClock:
    """Seconds since 1970 by the clock of this machine, `wall`, or by that of the API server if that
    differs by more than the tolerance. `steady` gives seconds that never go back: a jump of `wall`
    changes nothing before the next response.
    """

    def __init__(self, wall: Callable[[], float], steady: Callable[[], float]) -> None:
        self._wall, self._steady = wall, steady
        self._at, self._since = wall(), steady()

    def now(self) -> float:
        """The time now."""
        return self._at + self._steady() - self._since

    def sent(self) -> float:
        """The time of a request, for `answered`."""
        return self._steady()

    def answered(self, sent: float, date: str) -> None:
        """Takes the header Date of the response to a request; another text is ignored."""
        stated = _seconds(date)
        if stated is None:
            return
        since, at = self._steady(), self._wall()
        latest = stated + 1 + since - sent
        if not stated - TOLERANCE <= at <= latest + TOLERANCE:
            at = min(max(self.now(), stated), latest)
        self._at, self._since = at, since


@lru_cache(16)
def _seconds(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp()
    except ValueError:
        return None
