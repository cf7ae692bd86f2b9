"""Actions that succeed without effect, repeatedly: a created object vanishes, a patch is reverted.
Pure.

The API server accepts each of them, so no error delays them. An example: a DaemonSet is deleted
while DaemonSets cannot be read; the garbage collector removes each pod that is created for it, and
each deletion causes the next reconciliation.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

WINDOW = 60.0  # seconds
OFTEN = 5  # writes of the same target in a window before reconciliations are delayed


class Repetition:
    """The number of recent writes of each target of one DaemonSet; a target is an object, or a node
    for its pod.
    """

    def __init__(self) -> None:
        self._targets: dict[Hashable, tuple[int, float]] = {}
        self._swept = 0.0

    def note(self, targets: Iterable[Hashable], now: float) -> bool:
        """Whether a target was written too often; `now` in seconds, never decreasing."""
        if now - self._swept >= WINDOW:  # not for each decision: a rollout has thousands of targets
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
