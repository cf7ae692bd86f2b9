"""What is still to be told, and what was: all of it bounded, for it is kept in one ConfigMap. Pure.

A receiver that is away for long is told how much it missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from gitops_ds.model.events.definition import Topic
from gitops_ds.model.events.notifications import ONCE, Notification
from gitops_ds.service.notifications.commit_progress import CommitStage, StageKind
from gitops_ds.telemetry.notifications import NotificationBatch

WAITING = 100  # pieces of news for one receiver
IN_A_LETTER = 20
TOLD = 500  # ids
COMMITS = 30  # of a repository
AGAIN = 3600.0  # seconds after which the same trouble is told once more
GIVE_UP = 86_400.0  # seconds after which nobody wants to know


@dataclass(slots=True)
class ReceiverQueue:
    """The news for one receiver, in order, and how many there were besides."""

    items: list[Notification] = field(default_factory=list)
    omitted: int = 0

    def put(self, item: Notification) -> None:
        """One more; the oldest gives way."""
        self.items.append(item)
        over = len(self.items) - WAITING
        if over > 0:
            del self.items[:over]
            self.omitted += over

    def letter(self, cluster: str) -> NotificationBatch:
        """What to send now: of too many the loud ones first."""
        chosen = sorted(self.items, key=lambda item: not item.loud)[:IN_A_LETTER]
        return NotificationBatch(
            [item for item in self.items if item in chosen],
            self.omitted + len(self.items) - len(chosen),
            cluster,
        )

    def sent(self, batch: Sequence[Notification], omitted: int) -> None:
        """These were told, and so many counted; what gave way meanwhile was counted twice."""
        left = [item for item in self.items if item not in batch]
        gave_way = len(batch) - (len(self.items) - len(left))
        self.items, self.omitted = left, self.omitted - omitted - gave_way

    def forget(self, before: float) -> int:
        """Drops what is older; how many that were."""
        old = sum(1 for item in self.items if item.at < before)
        lost = old + self.omitted if old else 0
        if old:
            self.items = [item for item in self.items if item.at >= before]
            self.omitted = 0
        return lost


@dataclass(slots=True)
class Outbox:
    """`waiting` by the receiver's name; `told` are ids of news, each with when; `commits` the last
    stage of each, by repository.
    """

    waiting: dict[str, ReceiverQueue] = field(default_factory=dict)
    told: dict[str, float] = field(default_factory=dict)
    commits: dict[str, dict[str, CommitStage]] = field(default_factory=dict)

    def take(self, item: Notification, receivers: Iterable[str]) -> bool:
        """Whether it is new, and so waits for these receivers."""
        before = self.told.pop(item.id, None)
        fresh = before is None or (item.topic not in ONCE and item.at - before >= AGAIN)
        self.told[item.id] = item.at if before is None or fresh else before
        _shorten(self.told, TOLD)
        for name in receivers if fresh else ():
            self.waiting.setdefault(name, ReceiverQueue()).put(item)
        return fresh

    def note(self, repository: str, commit: str, stage: CommitStage) -> None:
        """This is what the forge shows from now on."""
        known = self.commits.setdefault(repository, {})
        known[commit] = stage
        _shorten(known, COMMITS)

    def show(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "version": "v1",
            "waiting": {
                name: {"items": [asdict(item) for item in one.items], "omitted": one.omitted}
                for name, one in sorted(self.waiting.items())
                if one.items or one.omitted
            },
            "told": self.told,
            "commits": {
                name: {commit: [stage.step.value, stage.tenth] for commit, stage in known.items()}
                for name, known in self.commits.items()
            },
        }


def parse(told: Mapping[str, Any]) -> Outbox:
    """What `show` showed. Raises LookupError, TypeError or ValueError for anything else."""
    if told["version"] != "v1":
        raise ValueError(f"version {told['version']!r} is not known here")
    waiting = {
        str(name): ReceiverQueue(
            [Notification(**{**item, "topic": Topic(item["topic"])}) for item in one["items"]],
            int(one["omitted"]),
        )
        for name, one in told["waiting"].items()
    }
    commits = {
        str(name): {
            str(commit): CommitStage(StageKind(step), int(tenth))
            for commit, (step, tenth) in known.items()
        }
        for name, known in told["commits"].items()
    }
    return Outbox(waiting, {str(id): float(at) for id, at in told["told"].items()}, commits)


def _shorten(memory: dict[str, Any], most: int) -> None:
    """Forgets what came first."""
    for name in list(memory)[: max(len(memory) - most, 0)]:
        del memory[name]
