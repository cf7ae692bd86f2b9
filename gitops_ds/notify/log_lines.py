"""Each event as one line of text, and as one JSON object. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gitops_ds.core.events.base import Event
from gitops_ds.core.events.commits import CommitRejected
from gitops_ds.core.events.definition import Level
from gitops_ds.core.objects import short, template_of
from gitops_ds.core.plain_text import listed
from gitops_ds.core.redaction import report, texts
from gitops_ds.kube.apimachinery import timestamps

LEVELS = tuple(Level)


def line(event: Event) -> str | None:
    """The text of the event, redacted; None for an event only for programs."""
    text = _rejection(event) if isinstance(event, CommitRejected) else event.text()
    return texts.words(text) if text else None


def _rejection(event: CommitRejected) -> str:
    first = listed(event.findings, 1, report.line_of)
    what = template_of(event.commit or "") or f"commit {short(event.commit)}"
    return f"{what} is not applied: {first}"


def matters(event: Event, least: str) -> bool:
    """Whether a log of level `least` contains the event."""
    return LEVELS.index(event.level) >= LEVELS.index(Level(least))


def dated(event: Event) -> str:
    """Time (UTC), level and text of the event, as in the log; empty without a text."""
    text = line(event)
    return stamped(event.at, event.level, text) if text else ""


def stamped(at: float, level: Level, text: str) -> str:
    """A line of the text log: time (UTC), level and text. Further lines of the text, which may be
    those of an API server or of Git, are indented, and no line of the log.
    """
    return f"{timestamps.text(at)} {level:<7} {text}".replace("\n", "\n  ")


def message(at: float, level: Level, text: str) -> dict[str, Any]:
    """The object in the JSON log of a message that is not an event, such as that of the start."""
    return {"time": at, "level": str(level), "kind": "Message", "message": texts.words(text)}


def as_json(event: Event) -> dict[str, Any] | None:
    """Time, level, kind, message, the declared keys, the object and details of the event; None for
    an event that JSON logs omit.
    """
    if not event.logged:
        return None
    document: dict[str, Any] = {
        "time": event.at,
        "level": str(event.level),
        "kind": event.definition.kind,
    }
    if text := line(event):
        document["message"] = text
    for key in event.definition.keys:
        if (value := getattr(event, key)) is not None:
            document[key] = _plain(value)
    if event.about is not None:
        document["object"] = str(event.about)
    return {**document, **{name: texts.words(value) for name, value in event.details().items()}}


def _plain(value: Any) -> Any:
    """The sum of counters, redacted text, or the value itself."""
    if isinstance(value, Mapping):
        return sum(value.values())
    return texts.words(value) if type(value) is str else value
