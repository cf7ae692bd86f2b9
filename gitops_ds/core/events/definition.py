"""The public side of a class of events: names that alerts, dashboards and scripts rely on."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from gitops_ds.core.objects import CommitId, Key


class Level(StrEnum):
    """The severity in logs: error requires a person, warning may require one, info is for people,
    debug for programs.
    """

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Tone(StrEnum):
    """The colour on the page."""

    PLAIN = "plain"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"


class Topic(StrEnum):
    """The subject of a notification: the values of `notify[].on`."""

    COMMIT = "commit"
    APPLIED = "applied"
    REJECTED = "rejected"
    FAILED = "failed"
    DONE = "done"
    DRIFT = "drift"
    COVERAGE = "coverage"
    STUCK = "stuck"
    PRUNE = "prune"


class EventDefinition(msgspec.Struct, frozen=True):
    """What a class of events declares.

    `kind` is the name in JSON logs and on the page; without one no log contains the event. `tone`
    applies to the levels debug and info. `reason` is that of the Kubernetes event, empty for none,
    `warning` its type. `metric` is a name of `gitops_ds.notify.metrics`. `keys` are the fields
    that JSON logs contain.
    """

    kind: str
    level: Level = Level.DEBUG
    tone: Tone = Tone.PLAIN
    reason: str = ""
    warning: bool = False
    metric: str = ""
    topic: Topic | None = None
    keys: tuple[str, ...] = ()
    on_page: bool = True


class Sample(msgspec.Struct, frozen=True):
    """An addition to a counter, an observation of a histogram, or the value of a gauge."""

    metric: str
    label: str = ""
    value: float = 1.0


class Notice(msgspec.Struct, frozen=True):
    """The content of a notification: `text` defaults to the line in the log, `mark` to the text."""

    topic: Topic
    text: str = ""
    mark: str = ""
    commit: CommitId | str = ""
    key: Key | None = None
