"""Actions that succeed and come to nothing, again and again: what we create vanishes, what we patch
is put back. Pure.

The API server takes each of them, so no error slows them down. An example: while DaemonSets can't
be read, one is deleted; the garbage collector removes each pod that is created for it, and its end
brings the next turn.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

WINDOW = 60.0  # seconds
OFTEN = 5  # times in a window that the same target is written before the turns slow down


class Repetition:
    """How often each target of one DaemonSet was written of late; a target is a node for its pod,
    or an object.
    """

    def __init__(self) -> None:
        self._targets: dict[Hashable, tuple[int, float]] = {}
        self._swept = 0.0

    def note(self, targets: Iterable[Hashable], now: float) -> bool:
        """Whether one of these targets was written too often; `now` in seconds, never going back."""
        if now - self._swept >= WINDOW:
            self._targets = {
                target: seen for target, seen in self._targets.items() if now - seen[1] < WINDOW
            }
            self._swept = now
        often = False
        for target in targets:
            count, since = self._targets.get(target, (0, now))
            count, since = (1, now) if now - since >= WINDOW else (count + 1, since)
            self._targets[target] = (count, since)
            often = often or count > OFTEN
        return often
