"""The settings of who is told outside of the cluster: receivers of news, and the forge that shows
the status of commits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gitops_ds.errors import SettingsError
from gitops_ds.forges.contract import ForgeKind
from gitops_ds.model.events.event_type import Topic
from gitops_ds.telemetry.notifications import MessageFormat


@dataclass(frozen=True, slots=True)
class ReceiverSettings:
    """Who is told of which topics; address and secret are names of files. At most `per_minute`
    messages are sent.
    """

    name: str
    url_file: str
    format: MessageFormat = MessageFormat.JSON
    topics: frozenset[Topic] = frozenset(Topic)
    secret_file: str = ""
    per_minute: int = 10


@dataclass(frozen=True, slots=True)
class ForgeSettings:
    """Where a repository's commits are shown; what is empty follows from the repository's address."""

    kind: ForgeKind
    token_file: str
    url: str = ""
    project: str = ""
    allow_http: bool = False


def parse(told: Sequence[Mapping[str, Any]]) -> tuple[ReceiverSettings, ...]:
    """The receivers of a group that its schema found right."""
    found = tuple(
        ReceiverSettings(
            one["name"],
            one["urlFile"],
            MessageFormat(one.get("format") or MessageFormat.JSON),
            frozenset(map(Topic, one["on"])) if "on" in one else frozenset(Topic),
            one.get("secretFile") or "",
            one.get("maxPerMinute") or 10,
        )
        for one in told
    )
    names = [one.name for one in found]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise SettingsError(f"notify: the name {twice} is there twice")
    return found


def forge(told: Mapping[str, Any]) -> ForgeSettings | None:
    """The settings `repository.forge`."""
    if not told:
        return None
    url, project = told.get("url") or "", told.get("project") or ""
    return ForgeSettings(
        ForgeKind(told["kind"]), told["tokenFile"], url, project, bool(told.get("allowHttp"))
    )
