"""Queued notifications, and the ids of those that were queued before. Pure.

All sizes are limited, because it is stored in one ConfigMap. The number of dropped notifications is
sent with the next ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import asdict

from gitops_ds.core.events.definition import Topic
from gitops_ds.core.events.notifications import ONCE, Notification
from gitops_ds.notify.notifications import NotificationBatch
from gitops_ds.service.notifications.commit_progress import CommitStage, StageKind

WAITING = 100  # notifications of one receiver
BATCH_SIZE = 20
REMEMBERED = 500  # ids
COMMITS = 30  # of a repository
AGAIN = 3600.0  # seconds after which the same problem is sent again
GIVE_UP = 86_400.0  # seconds after which a notification is dropped


@dataclass(slots=True)
class ReceiverQueue:
    """The notifications for one receiver, in order, and the number of those `omitted`."""

    items: list[Notification] = field(default_factory=list)
    omitted: int = 0

    def put(self, item: Notification) -> None:
        """Adds one, and drops the oldest of too many."""
        self.items.append(item)
        over = len(self.items) - WAITING
        if over > 0:
            del self.items[:over]
            self.omitted += over

    def batch(self, cluster: str) -> NotificationBatch:
        """The next batch to send: of too many the urgent ones first."""
        chosen = sorted(self.items, key=lambda item: not item.loud)[:BATCH_SIZE]
        return NotificationBatch(
            [item for item in self.items if item in chosen],
            self.omitted + len(self.items) - len(chosen),
            cluster,
        )

    def sent(self, batch: Sequence[Notification], omitted: int) -> None:
        """Removes the notifications of a delivered batch, and the number that it reported."""
        left = [item for item in self.items if item not in batch]
        # Notifications of the batch that `put` dropped during the delivery count as omitted.
        dropped = len(batch) - (len(self.items) - len(left))
        self.items, self.omitted = left, self.omitted - omitted - dropped

    def forget(self, before: float) -> int:
        """Drops older notifications; returns their number."""
        old = sum(1 for item in self.items if item.at < before)
        lost = old + self.omitted if old else 0
        if old:
            self.items = [item for item in self.items if item.at >= before]
            self.omitted = 0
        return lost


@dataclass(slots=True)
class Outbox:
    """`waiting` by the receiver's name; `seen` are the times of notifications by their ids;
    `commits` the last stage of each commit, by repository.
    """

    waiting: dict[str, ReceiverQueue] = field(default_factory=dict)
    seen: dict[str, float] = field(default_factory=dict)
    commits: dict[str, dict[str, CommitStage]] = field(default_factory=dict)

    def take(self, item: Notification, receivers: Iterable[str]) -> bool:
        """Queues a notification for receivers if it is new or due again; returns whether it was
        queued.
        """
        before = self.seen.pop(item.id, None)
        fresh = before is None or (item.topic not in ONCE and item.at - before >= AGAIN)
        self.seen[item.id] = item.at if before is None or fresh else before
        _shorten(self.seen, REMEMBERED)
        for name in receivers if fresh else ():
            self.waiting.setdefault(name, ReceiverQueue()).put(item)
        return fresh

    def note(self, repository: str, commit: str, stage: CommitStage) -> None:
        """Stores the stage that the forge shows."""
        stages = self.commits.setdefault(repository, {})
        stages[commit] = stage
        _shorten(stages, COMMITS)

    def show(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "version": "v1",
            "waiting": {
                name: {"items": [asdict(item) for item in one.items], "omitted": one.omitted}
                for name, one in sorted(self.waiting.items())
                if one.items or one.omitted
            },
            "told": self.seen,
            "commits": {
                name: {commit: [stage.step.value, stage.tenth] for commit, stage in stages.items()}
                for name, stages in self.commits.items()
            },
        }


def parse(content: Mapping[str, Any]) -> Outbox:
    """The outbox of `show`. Raises LookupError, TypeError or ValueError for anything else."""
    if content["version"] != "v1":
        raise ValueError(f"unknown version {content['version']!r}")
    waiting = {
        str(name): ReceiverQueue(
            [Notification(**{**item, "topic": Topic(item["topic"])}) for item in one["items"]],
            int(one["omitted"]),
        )
        for name, one in content["waiting"].items()
    }
    commits = {
        str(name): {
            str(commit): CommitStage(StageKind(step), int(tenth))
            for commit, (step, tenth) in stages.items()
        }
        for name, stages in content["commits"].items()
    }
    return Outbox(waiting, {str(id): float(at) for id, at in content["told"].items()}, commits)


def _shorten(entries: dict[str, Any], most: int) -> None:
    """Removes the first entries of too many."""
    for name in list(entries)[: max(len(entries) - most, 0)]:
        del entries[name]
