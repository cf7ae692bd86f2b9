"""The public names of every class of events, as a file: `kind` and keys in JSON logs, level, tone,
reasons of Kubernetes events, entries of the page, metrics, and topics of notifications. Alerts,
dashboards and scripts rely on them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from gitops_ds.core.decision import Action
from gitops_ds.core.events import base
from gitops_ds.core.events.base import Event
from gitops_ds.notify import log_lines
from gitops_ds.notify.kube_events import EventRecorder, InvolvedObject
from gitops_ds.notify.metrics import Metrics
from gitops_ds.notify.notifications import NotificationBuilder
from gitops_ds.service.page_view import EventFeed
from tests import goldens
from tests.report.events import AGENT, POD, TEXT, concrete, made, samples

GOLDENS = Path(__file__).parent / "goldens"
STATE = InvolvedObject("v1", "ConfigMap", "gitops-ds", "gitops-ds-x")
REPOSITORY = "git.example.com/fleet"


def _kube_events(event: Event, state: InvolvedObject | None) -> Iterator[str]:
    for kube in EventRecorder(state).kube_events(event):
        yield f"{'Warning' if kube.warning else 'Normal'} {kube.reason} on {kube.about.kind}"


def _page_events(event: Event) -> Iterator[str]:
    feed = EventFeed()
    feed.handle(event)
    for one in feed.events():
        about = " ".join(
            name for name, value in (("key", one.key), ("commit", one.commit)) if value
        )
        yield " ".join(filter(None, (one.kind, one.tone, about)))


@functools.cache
def _metrics_without_events() -> frozenset[str]:
    return frozenset(Metrics().text().decode().splitlines())


def _metrics(event: Event) -> Iterator[str]:
    metrics = Metrics()
    metrics.handle(event)
    for line in metrics.text().decode().splitlines():
        left_out = ("#" in line, "_created" in line, "_bucket" in line)
        if line not in _metrics_without_events() and not any(left_out):
            yield line


def _topics(event: Event) -> Iterator[str]:
    if item := NotificationBuilder().handle(event, REPOSITORY):
        marks = {"repository": item.repository, "commit": item.commit, "agent": item.agent}
        about = " ".join(name for name, value in marks.items() if value)
        mark = item.mark if item.mark in ("once", "1") else "text"
        yield f"{item.topic} {'loud ' if item.loud else ''}mark={mark} {about}".strip()


def _public(event: Event) -> str:
    """What programs see of one event, on one line."""
    json = log_lines.as_json(event)
    parts = {
        "json": " ".join(json) if json else "",
        "level": event.level,
        "tone": event.tone,
        "kube": ", ".join(_kube_events(event, STATE)),
        "kube of a service without a repository": ", ".join(_kube_events(event, None)),
        "page": ", ".join(_page_events(event)),
        "metrics": ", ".join(_metrics(event)),
        "notification": ", ".join(_topics(event)),
    }
    text = "; ".join(f"{name}: {value}" for name, value in parts.items() if value)
    return text.replace(TEXT, "TEXT")


def test_the_public_names_of_every_event() -> None:
    blocks = []
    for kind in concrete():
        events = samples(kind)
        names = {str((log_lines.as_json(event) or {}).get("kind", "")) for event in events}
        lines = sorted({f"  {_public(event)}" for event in events})
        blocks.append("\n".join([f"kind: {' '.join(sorted(filter(None, names))) or '-'}", *lines]))
    goldens.check(GOLDENS / "public_names.txt", "\n".join(sorted(blocks)) + "\n")


@pytest.mark.parametrize("turn", range(2))
def test_the_public_names_of_every_action(turn: int) -> None:
    lines = []
    for kind in get_args(Action):
        action = made(kind, turn)
        json = log_lines.as_json(base.Performed(1.0, AGENT, action, POD)) or {}
        lines.append(f"action: {json['action']}; keys: {' '.join(json)}")
    goldens.check(GOLDENS / "actions.txt", "\n".join(lines) + "\n")
