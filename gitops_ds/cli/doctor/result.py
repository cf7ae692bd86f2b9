"""The result of one check of `doctor`."""

from __future__ import annotations

from collections.abc import Awaitable
from enum import StrEnum

import msgspec

from gitops_ds.core import errors


class CheckVerdict(StrEnum):
    """The verdict of one check."""

    OK = "ok"
    WARNING = "warning"
    BAD = "bad"


class Line(msgspec.Struct, frozen=True):
    """One check, its verdict, and the advice for a problem."""

    name: str
    verdict: CheckVerdict
    message: str
    advice: str = ""


def ok(name: str, message: str, advice: str = "") -> Line:
    """The line of a check without a problem."""
    return Line(name, CheckVerdict.OK, message, advice)


def warning(name: str, message: str, advice: str) -> Line:
    """The line of a check with a problem that an apply survives."""
    return Line(name, CheckVerdict.WARNING, message, advice)


def bad(name: str, message: str, advice: str = "") -> Line:
    """The line of a check that failed."""
    return Line(name, CheckVerdict.BAD, message, advice)


async def probe(name: str, well: str, looking: Awaitable[str], advice: str) -> Line:
    """The line of a check that returns a problem, or an empty string."""
    try:
        trouble = await looking
    except errors.GitopsError as error:
        trouble = str(error)
    return bad(name, trouble, advice) if trouble else ok(name, well)
