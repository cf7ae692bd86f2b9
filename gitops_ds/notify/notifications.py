"""The notifications of events, and their formats for chats and programs. Pure."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec
import orjson

from gitops_ds.core import plain_text
from gitops_ds.core.events.agents import AgentEvent
from gitops_ds.core.events.base import ControllerEvent, Event
from gitops_ds.core.events.commits import CommitRejected
from gitops_ds.core.events.definition import Notice
from gitops_ds.core.events.deployer import ReconcileFailed, ReconcileTimed
from gitops_ds.core.events.notifications import Notification
from gitops_ds.core.objects import short
from gitops_ds.core.redaction import report, texts
from gitops_ds.kube.apimachinery import timestamps
from gitops_ds.notify import log_lines

PATIENCE = 300.0  # seconds without a successful reconciliation before a failure is reported
LONGEST = 1_000  # characters of one notification
LINES = 20  # of a message to a chat
_QUOTED = 3  # findings of a rejected commit


@dataclass(slots=True)
class NotificationBuilder:
    """Turns events into notifications. Failures that may resolve without a person are reported
    after a while.
    """

    _waiting: dict[str, Notification] = field(default_factory=dict)

    def handle(self, event: Event, repository: str) -> Notification | None:
        """The notification of an event of the deployer of `repository`, empty for other events."""
        if isinstance(event, ReconcileTimed):
            return self._overdue(event, repository)
        notice = event.notice()
        if notice is None:
            return None
        notification = _notification(event, notice, repository)
        if isinstance(event, ReconcileFailed) and event.retry_in is not None:
            self._waiting.setdefault(repository, notification)
            return None
        return notification

    def _overdue(self, event: ReconcileTimed, repository: str) -> Notification | None:
        if event.well:
            self._waiting.pop(repository, None)
            return None
        waiting = self._waiting.get(repository)
        return waiting if waiting and event.at - waiting.at >= PATIENCE else None


def _rejection(event: CommitRejected) -> str:
    findings = event.findings
    quoted = "; ".join(map(report.line_of, findings[:_QUOTED]))
    more = f"; and {len(findings) - _QUOTED} more" if len(findings) > _QUOTED else ""
    return f"commit {short(event.commit)} is not applied: {quoted}{more}"


def _notification(event: Event, notice: Notice, repository: str) -> Notification:
    """The notification; one without its own mark differs from others by its text."""
    rejected = _rejection(event) if isinstance(event, CommitRejected) else ""
    text = rejected or notice.text or log_lines.line(event) or ""
    text = plain_text.shortened(texts.words(" ".join(text.split())), LONGEST)
    key = notice.key
    return Notification(
        notice.topic,
        event.at,
        text,
        notice.mark or text,
        repository="" if isinstance(event, AgentEvent | ControllerEvent) else repository,
        commit=notice.commit,
        agent=f"{key.namespace}/{key.name}" if key is not None and key.is_daemonset else "",
    )


class MessageFormat(StrEnum):
    """The format of a receiver."""

    JSON = "json"
    SLACK = "slack"


class NotificationBatch(msgspec.Struct, frozen=True):
    """The content of one request: the notifications, the number of omitted ones above the limit,
    and the cluster.
    """

    items: Sequence[Notification]
    omitted: int = 0
    cluster: str = ""


def body(format: MessageFormat, batch: NotificationBatch) -> bytes:
    """The body of the request."""
    match format:
        case MessageFormat.JSON:
            return orjson.dumps(_document(batch))
        case MessageFormat.SLACK:
            return orjson.dumps(_chat(batch))


def _chat(batch: NotificationBatch) -> Mapping[str, Any]:
    """https://docs.slack.dev/messaging/formatting-message-text; Mattermost, Rocket.Chat and Discord
    (`/slack`) take it as well.
    """
    lines = [_line(item, batch.cluster) for item in batch.items[:LINES]]
    more = batch.omitted + max(len(batch.items) - LINES, 0)
    return {"text": "\n".join([*lines, *([f"and {more} more"] if more else [])])}


def _line(item: Notification, cluster: str) -> str:
    where = f"{cluster}: " if cluster else ""
    mark = "warning " if item.loud else ""
    return f"{mark}*{item.topic}* {_escaped(where + item.message)}"


def _escaped(text: str) -> str:
    """The text without mentions and links, which the subject of a commit may contain."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _document(batch: NotificationBatch) -> Mapping[str, Any]:
    items = [
        {
            "id": item.id,
            "topic": item.topic,
            "severity": "warning" if item.loud else "info",
            "time": timestamps.text(item.at),
            "message": item.message,
            "repository": item.repository,
            "commit": item.commit,
            "agent": item.agent,
        }
        for item in batch.items
    ]
    return {
        "apiVersion": "gitops-ds.io/v1",
        "kind": "News",
        "cluster": batch.cluster,
        "omitted": batch.omitted,
        "items": items,
    }


def signature(secret: bytes, body: bytes) -> str:
    """The value of `X-Signature`, as Flux's generic-hmac sends it:
    https://fluxcd.io/flux/components/notification/providers/
    """
    return f"sha256={hmac.new(secret, body, hashlib.sha256).hexdigest()}"
