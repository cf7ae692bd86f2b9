"""What people are told outside of the cluster, and the facts about telling them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from gitops_ds.model.events.base import Event
from gitops_ds.model.events.definition import EventDefinition, Level, Sample, Topic
from gitops_ds.model.plural import counted

# what was told; no repository's state can be called so: those begin with `gitops-ds-`
CONFIG_MAP_NAME = "gitops-ds.news"


# Somebody should look.
_LOUD = frozenset(
    (Topic.REJECTED, Topic.FAILED, Topic.DRIFT, Topic.COVERAGE, Topic.STUCK, Topic.PRUNE)
)
# A commit is part of these: they happen once, and are never told again.
ONCE = frozenset((Topic.COMMIT, Topic.APPLIED, Topic.REJECTED, Topic.FAILED, Topic.DONE))


@dataclass(frozen=True, slots=True)
class Notification:
    """One piece of news, in a sentence; `agent` is NAMESPACE/NAME, and what does not apply is
    empty.

    `mark` tells it from another of the same topic, repository, agent and commit.
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
        """Whether somebody should look."""
        return self.topic in _LOUD

    @property
    def id(self) -> str:
        """The same for the same news, whichever replica tells it, and when."""
        whole = "\0".join((self.topic, self.repository, self.agent, self.commit, self.mark))
        return hashlib.sha256(whole.encode()).hexdigest()[:16]


_METRIC = "gitopsds_news"


@dataclass(frozen=True, slots=True)
class NotificationEvent(Event):
    """An event about a receiver of notifications, or a forge, by its name in the settings."""

    receiver: str


@dataclass(frozen=True, slots=True)
class NotificationSent(NotificationEvent):
    """The receiver accepted `items` notifications."""

    definition = EventDefinition("Told", metric=_METRIC)

    items: int

    def samples(self) -> tuple[Sample, ...]:
        """The notifications."""
        return (Sample(_METRIC, "told", self.items),)


@dataclass(frozen=True, slots=True)
class NotificationFailed(NotificationEvent):
    """A failed delivery. `lost` counts dropped notifications; without any it is tried again.
    Emitted once for each message.
    """

    definition = EventDefinition("NotTold", Level.WARNING, metric=_METRIC)

    message: str
    lost: int = 0

    def text(self) -> str:
        """The line in the log."""
        return f"not told: {self.receiver}: {self.message}" + (
            f"; {counted(self.lost, 'notification')} lost" if self.lost else ""
        )

    def samples(self) -> tuple[Sample, ...]:
        """The dropped notifications, or one failed attempt."""
        return (Sample(_METRIC, "lost" if self.lost else "failed", self.lost or 1),)
