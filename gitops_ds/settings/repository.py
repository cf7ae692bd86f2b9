"""The settings of a repository: where it is, how often it is looked at, who we are there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gitops_ds.settings import durations


@dataclass(frozen=True, slots=True)
class RepositorySettings:
    """Which repository, and how often it is looked at; times in seconds. Credentials are names of files."""

    url: str = ""
    branch: str = ""
    tag: str = ""
    semver: str = ""
    commit: str = ""
    ref: str = ""
    path: str = ""
    allow_local: bool = False
    interval: float = 60.0
    jitter: float = 6.0
    retry_interval: float = 15.0
    timeout: float = 60.0
    limits: Mapping[str, int] = field(default_factory=dict)
    credentials: Mapping[str, str] = field(default_factory=dict)


def parse(told: Mapping[str, Any]) -> RepositorySettings:
    """The settings of a document that its schema found right."""
    texts = {name: str(told[name]) for name in ("url", "branch", "tag", "semver", "commit", "ref", "path") if name in told}
    times = {"interval": "interval", "retryInterval": "retry_interval", "timeout": "timeout"}
    seconds_of = {ours: durations.seconds(told[theirs]) for theirs, ours in times.items() if theirs in told}
    found = replace(RepositorySettings(), **texts, allow_local=bool(told.get("allowLocal")), **seconds_of)  # type: ignore[arg-type]
    found = replace(found, jitter=_jitter(told.get("jitter", "10%"), found.interval))
    return replace(found, limits=told.get("limits") or {}, credentials=told.get("credentials") or {})


def _jitter(said: int | str, interval: float) -> float:
    """In seconds; a number counts seconds, per cent are of the interval."""
    return float(said) if isinstance(said, int) else interval * float(said.removesuffix("%")) / 100
