"""A limit on the CPU time of what a repository can make run long: JSON Schemas of its own.

The limit goes with the context, as the listener of `spans` does. The shell sets it; without one
nothing is limited.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar


class CpuLimitExceeded(BaseException):
    """The CPU time is used up. No Exception: the isolation of failing rules must not catch it."""


limiter: ContextVar[Callable[[], AbstractContextManager[None]] | None] = ContextVar(
    "limiter", default=None
)
_UNLIMITED = nullcontext()


def limited() -> AbstractContextManager[None]:
    """The work that a `with` encloses counts against the limit; raises CpuLimitExceeded when it is
    used up.
    """
    begin = limiter.get()
    return _UNLIMITED if begin is None else begin()
