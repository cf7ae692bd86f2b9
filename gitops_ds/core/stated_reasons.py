"""The reasons that people state for a hold or a suspension: one line, without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from gitops_ds.core.plain_text import line
from gitops_ds.core.redaction import texts
from gitops_ds.core.values import UNREADABLE_JSON

LONGEST: Final = 200  # characters


def flaw(reason: str) -> str:
    """Why a text is not valid as a reason; empty if it is."""
    if len(reason) > LONGEST:
        return f"the reason has {len(reason)} characters: at most {LONGEST} are allowed"
    return "" if reason.isprintable() else "the reason must be one line of printable characters"


def shown(reason: str) -> str:
    """A stated reason as it is shown: its annotation has any text."""
    return texts.words(line(reason.strip(), LONGEST))


def after(words: str, reason: str) -> str:
    """The words, with the reason if one is stated."""
    return f"{words}: {shown(reason)}" if reason.strip() else words


def by_commit(text: str) -> Mapping[str, str]:
    """The reasons by commit in an annotation; none if it is invalid."""
    try:
        reasons = msgspec.json.decode(text or "{}", type=dict[str, str])
    except UNREADABLE_JSON:
        return {}
    return {commit: shown(reason) for commit, reason in reasons.items() if reason.strip()}


def of_commit(reasons: Mapping[str, str], commit: str) -> str:
    """The reason of a commit, by its first digits; empty if none is stated."""
    return next((reasons[reason] for reason in sorted(reasons) if commit.startswith(reason)), "")


def encoded(reasons: Mapping[str, str]) -> str | None:
    """The annotation with these reasons; None without any."""
    return msgspec.json.encode(reasons, order="sorted").decode() if reasons else None
