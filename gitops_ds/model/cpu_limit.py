"""A limit on the CPU time of checks that a repository can make slow: its own JSON Schemas.

The limit is a context variable, like the listener of `spans`. The shell sets it; by default the
time is unlimited.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar


class CpuLimitExceeded(BaseException):
    """The CPU time is used up. Not a subclass of Exception, because the isolation of failing rules
    must not catch it.
    """


limiter: ContextVar[Callable[[], AbstractContextManager[None]] | None] = ContextVar(
    "limiter", default=None
)
_UNLIMITED = nullcontext()


def limited() -> AbstractContextManager[None]:
    """Counts the work inside the `with` against the limit. Raises CpuLimitExceeded when it is used
    up.
    """
    begin = limiter.get()
    return _UNLIMITED if begin is None else begin()
