"""Which records people are told of, and how that is written for a chat and for a program. Pure."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import orjson

from gitops_ds.apimachinery import timestamps
from gitops_ds.model import guards
from gitops_ds.model.events import agents, deployer
from gitops_ds.model.events.base import Record
from gitops_ds.model.events.deployer import SourceChanged
from gitops_ds.model.events.notifications import News, Topic
from gitops_ds.model.guards import PRUNING
from gitops_ds.model.objects import Key
from gitops_ds.model.source_status import Condition
from gitops_ds.redaction import report, texts
from gitops_ds.telemetry import kube_events, log_lines

# Conditions of a repository that no other record notifies of.
_LEFT = (Condition.PARTLY_APPLIED, Condition.HELD, Condition.SUSPENDED)
PATIENCE = 300.0  # seconds without a good pass, before people are told of what may pass by itself
LONGEST = 1_000  # characters of one piece of news
LINES = 20  # of a message to a chat


@dataclass(slots=True)
class Fold:
    """Turns records into news. What may pass by itself is told when it has not done so for a while."""

    _waiting: dict[str, News] = field(default_factory=dict)

    def hear(self, told: Record, repository: str) -> News | None:
        """The news of a record that the deployer of `repository` told, or (empty) nobody's in
        particular.
        """
        match told:
            case deployer.PassFailed(at=at, message=message, retry_in=wait):
                found = _news(Topic.STUCK, at, message, repository=repository)
                if wait is None:
                    return found
                self._waiting.setdefault(repository, found)
            case deployer.PassTook(at=at, well=well):
                if well:
                    self._waiting.pop(repository, None)
                elif (waiting := self._waiting.get(repository)) and at - waiting.at >= PATIENCE:
                    return waiting
            case agents.Standing():
                return _of_agent(told)
            case _:
                return _of_repository(told, repository)
        return None


def _of_agent(told: agents.Standing) -> News | None:
    about = kube_events.stands(told, kube_events.InvolvedObject("", "", "", ""))
    if about is None:
        return None
    key, said = told.daemonset, about.message
    match told:
        case agents.RolloutFailed(commit=commit, revision=revision):
            return _news(
                Topic.FAILED,
                told.at,
                f"{key}: rollout failed: {said}",
                mark=str(revision),
                commit=commit,
                key=key,
            )
        case agents.RolloutCompleted(commit=commit, revision=revision):
            return _news(
                Topic.DONE, told.at, f"{key}: {said}", mark=str(revision), commit=commit, key=key
            )
        case agents.CoverageLost():
            return _news(Topic.COVERAGE, told.at, f"{key}: {said}", key=key)
        case _:
            return None


def _of_repository(told: Record, repository: str) -> News | None:
    match told:
        case deployer.NewCommit(commit=commit):
            topic = Topic.COMMIT
        case deployer.PassEnded(commit=str(commit), writes=writes) if writes and told.whole:
            topic = Topic.APPLIED
        case deployer.CommitRejected(commit=commit, findings=findings):
            safe = "; ".join(map(report.line_of, findings[:3]))
            more = f"; and {len(findings) - 3} more" if len(findings) > 3 else ""
            message = f"commit {(commit or '')[:12]} is not applied: {safe}{more}"
            return _news(
                Topic.REJECTED,
                told.at,
                message,
                mark="once",
                repository=repository,
                commit=commit or "",
            )
        case SourceChanged(status=status) if status.condition in _LEFT:
            return _news(
                Topic.STUCK,
                told.at,
                status.message,
                repository=repository,
                commit=status.newest or "",
            )
        case deployer.VerificationFailed(commit=commit):
            topic = Topic.REJECTED
        case deployer.DriftDetected(object=key) | deployer.DriftContested(object=key):
            about = key if key.is_daemonset else None
            return _news(
                Topic.DRIFT, told.at, log_lines.line(told) or "", repository=repository, key=about
            )
        case deployer.NotApplied(refusal=refusal) if guards.of(refusal.guard).stuck:
            return _news(
                Topic.STUCK,
                told.at,
                log_lines.line(told) or "",
                repository=repository,
                key=refusal.key,
            )
        case deployer.Withheld(refusal=refusal) if guards.of(refusal.guard).stuck:
            topic = Topic.PRUNE if refusal.guard in PRUNING else Topic.STUCK
            return _news(
                topic, told.at, log_lines.line(told) or "", repository=repository, key=refusal.key
            )
        case _:
            return None
    return _news(
        topic,
        told.at,
        log_lines.line(told) or "",
        mark="once",
        repository=repository,
        commit=commit or "",
    )


def _news(
    topic: Topic, at: float, message: str, *, key: Key | None = None, mark: str = "", **more: str
) -> News:
    """Without a mark of its own a piece of news is another one when it says something else."""
    text = texts.words(" ".join(message.split()))
    text = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    agent = f"{key.namespace}/{key.name}" if key is not None and key.is_daemonset else ""
    return News(topic, at, text, mark or text, agent=agent, **more)


class MessageFormat(StrEnum):
    """What a receiver understands."""

    JSON = "json"
    SLACK = "slack"


@dataclass(frozen=True, slots=True)
class Letter:
    """What is sent at once: the news, how many more were left out because there were too many, and
    of which cluster.
    """

    items: Sequence[News]
    omitted: int = 0
    cluster: str = ""


def body(format: MessageFormat, letter: Letter) -> bytes:
    """The body of the request."""
    return orjson.dumps(_chat(letter) if format is MessageFormat.SLACK else _document(letter))


def _chat(letter: Letter) -> Mapping[str, Any]:
    """https://docs.slack.dev/messaging/formatting-message-text; Mattermost, Rocket.Chat and Discord
    (`/slack`) take it as well.
    """
    lines = [_line(item, letter.cluster) for item in letter.items[:LINES]]
    more = letter.omitted + max(len(letter.items) - LINES, 0)
    return {"text": "\n".join([*lines, *([f"and {more} more"] if more else [])])}


def _line(item: News, cluster: str) -> str:
    where = f"{cluster}: " if cluster else ""
    mark = "warning " if item.loud else ""
    return f"{mark}*{item.topic}* {_escaped(where + item.message)}"


def _escaped(text: str) -> str:
    """Nobody is called by a commit's subject, and no link hides behind words."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _document(letter: Letter) -> Mapping[str, Any]:
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
        for item in letter.items
    ]
    return {
        "apiVersion": "gitops-ds.io/v1",
        "kind": "News",
        "cluster": letter.cluster,
        "omitted": letter.omitted,
        "items": items,
    }


def signature(secret: bytes, body: bytes) -> str:
    """The value of `X-Signature`, as Flux's generic-hmac sends it:
    https://fluxcd.io/flux/components/notification/providers/
    """
    return f"sha256={hmac.new(secret, body, hashlib.sha256).hexdigest()}"
