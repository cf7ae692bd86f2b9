"""What people are told outside of the cluster, and the facts about telling them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum

from gitops_ds.model.events.base import Record

# what was told; no repository's state can be called so: those begin with `gitops-ds-`
CONFIG_MAP_NAME = "gitops-ds.news"


class Topic(StrEnum):
    """What a piece of news is about: the words of `notify[].on`."""

    COMMIT = "commit"
    APPLIED = "applied"
    REJECTED = "rejected"
    FAILED = "failed"
    DONE = "done"
    DRIFT = "drift"
    COVERAGE = "coverage"
    STUCK = "stuck"
    PRUNE = "prune"


# Somebody should look.
_LOUD = frozenset(
    (Topic.REJECTED, Topic.FAILED, Topic.DRIFT, Topic.COVERAGE, Topic.STUCK, Topic.PRUNE)
)
# A commit is part of these: they happen once, and are never told again.
ONCE = frozenset((Topic.COMMIT, Topic.APPLIED, Topic.REJECTED, Topic.FAILED, Topic.DONE))


@dataclass(frozen=True, slots=True)
class News:
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


@dataclass(frozen=True, slots=True)
class Telling(Record):
    """About a receiver of news, or a forge, by its name in the settings."""

    receiver: str


@dataclass(frozen=True, slots=True)
class Told(Telling):
    """It took so many pieces of news."""

    items: int


@dataclass(frozen=True, slots=True)
class NotTold(Telling):
    """It did not take them, and why. `lost` counts those that are given up; without any it is tried
    again. Said once.
    """

    message: str
    lost: int = 0
