"""The poll interval of a repository: longer while webhooks announce every commit.

Webhooks are trusted after one that came with a commit, until a commit appears without one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

# With trusted webhooks the interval is multiplied by this, up to this number of seconds.
FACTOR, LONGEST = 10.0, 3600.0
# seconds within which a webhook and a commit belong together, in either order
TOGETHER = 120.0


@dataclass(slots=True)
class PollInterval:
    """The polls of one repository; `interval` is that of the settings. Times are seconds of a
    monotonic clock.
    """

    interval: float
    clock: Callable[[], float]
    webhooks_trusted: bool = field(default=False, init=False)
    _last_webhook: float | None = field(default=None, init=False)
    _last_commit: float | None = field(default=None, init=False)
    _last_poll: float | None = field(default=None, init=False)

    @property
    def seconds(self) -> float:
        """The current seconds between two polls."""
        if not self.webhooks_trusted:
            return self.interval
        return max(self.interval, min(self.interval * FACTOR, LONGEST))

    def due(self) -> bool:
        """Whether a tick of the schedule leads to a poll, which is then the last one."""
        now = self.clock()
        # A tick may be a little early, and one at the end of the interval must not be skipped.
        if (
            self.webhooks_trusted
            and self._last_poll is not None
            and now - self._last_poll < self.seconds - self.interval / 2
        ):
            return False
        self._last_poll = now
        return True

    def webhook_received(self) -> None:
        """Registers the announcement of a push."""
        self._last_webhook = self.clock()
        if self._last_commit is not None and self._last_webhook - self._last_commit <= TOGETHER:
            self.webhooks_trusted = True
            self._last_webhook = self._last_commit = None

    def commit_found(self) -> None:
        """Registers a new commit."""
        self._last_commit = self.clock()
        self.webhooks_trusted = (
            self._last_webhook is not None and self._last_commit - self._last_webhook <= TOGETHER
        )
        if self.webhooks_trusted:  # each webhook announces one commit
            self._last_webhook = self._last_commit = None
