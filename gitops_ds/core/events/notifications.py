"""Notifications for receivers outside of the cluster, and the events of their delivery."""

from __future__ import annotations

import hashlib

import msgspec

from gitops_ds.core.events.base import Event
from gitops_ds.core.events.definition import EventDefinition, Level, Sample, Topic
from gitops_ds.core.plain_text import counted

# the outbox; different from the names of states, which begin with `gitops-ds-`
CONFIG_MAP_NAME = "gitops-ds.news"


# The severity of these is warning.
_LOUD = frozenset(
    (Topic.REJECTED, Topic.FAILED, Topic.DRIFT, Topic.COVERAGE, Topic.STUCK, Topic.PRUNE)
)
# These have a commit: they are sent once and never repeated.
ONCE = frozenset((Topic.COMMIT, Topic.APPLIED, Topic.REJECTED, Topic.FAILED, Topic.DONE))


class Notification(msgspec.Struct, frozen=True):
    """The text of a notification; `agent` is NAMESPACE/NAME. Fields that do not apply are empty.

    `mark` separates it from others of the same topic, repository, agent and commit.
    """

    topic: Topic
    at: float
    message: str
    mark: str
    repository: str = ""
    commit: str = ""
    agent: str = ""

    @property
    def loud(self) -> bool:
        """Whether the severity is warning."""
        return self.topic in _LOUD

    @property
    def id(self) -> str:
        """The identity, which is the same on every replica and at every time."""
        whole = "\0".join((self.topic, self.repository, self.agent, self.commit, self.mark))
        return hashlib.sha256(whole.encode()).hexdigest()[:16]


_METRIC = "gitopsds_news"


class NotificationEvent(Event, frozen=True):
    """An event about a receiver of notifications, or a forge, by its name in the settings."""

    receiver: str


class NotificationSent(NotificationEvent, frozen=True):
    """The receiver accepted `items` notifications."""

    definition = EventDefinition("Told", metric=_METRIC)

    items: int

    def samples(self) -> tuple[Sample, ...]:
        """The notifications."""
        return (Sample(_METRIC, "told", self.items),)


class NotificationFailed(NotificationEvent, frozen=True):
    """A failed delivery. `lost` counts dropped notifications; if 0, the delivery is retried.
    Emitted once for each message.
    """

    definition = EventDefinition("NotTold", Level.WARNING, metric=_METRIC)

    message: str
    lost: int = 0

    def text(self) -> str:
        """The line in the log."""
        return f"notification to {self.receiver} failed: {self.message}" + (
            f"; {counted(self.lost, 'notification')} dropped" if self.lost else ""
        )

    def samples(self) -> tuple[Sample, ...]:
        """The dropped notifications, or one failed attempt."""
        return (Sample(_METRIC, "lost" if self.lost else "failed", self.lost or 1),)
