"""A source whose requests count as progress of the reconciliation, and whose requests to Git are
timed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from gitops_ds.deployer.report_once import LeaderEmitter
from gitops_ds.deployer.revision_selector import RevisionSource
from gitops_ds.model.events.deployer import GitTimed
from gitops_ds.model.values import replace
from gitops_ds.telemetry import spans

P = ParamSpec("P")
T = TypeVar("T")


def observed(
    source: RevisionSource, emit: LeaderEmitter, clock: Callable[[], float]
) -> RevisionSource:
    """The same source."""

    def reading(request: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        return _reading(request, emit)

    def timed(of: str, request: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        return _reading(_timed(of, request, emit, clock), emit)

    return replace(
        source,
        tip=timed("tip", source.tip),
        snapshot=timed("snapshot", source.snapshot),
        movement=reading(source.movement),
        prepare=reading(source.prepare),
        verify=reading(source.verify),
        verify_kept=reading(source.verify_kept),
    )


def _reading(request: Callable[P, Awaitable[T]], emit: LeaderEmitter) -> Callable[P, Awaitable[T]]:
    """The same request, which counts as progress while it runs."""

    async def reading(*args: P.args, **kwargs: P.kwargs) -> T:
        with emit.reading():
            return await request(*args, **kwargs)

    return reading


def _timed(
    of: str,
    request: Callable[P, Awaitable[T]],
    emit: LeaderEmitter,
    clock: Callable[[], float],
) -> Callable[P, Awaitable[T]]:
    """The same request to Git; its duration is published."""

    async def timed(*args: P.args, **kwargs: P.kwargs) -> T:
        began, succeeded = asyncio.get_running_loop().time(), False
        try:
            with spans.span("git", of=of):
                answer = await request(*args, **kwargs)
            succeeded = True
            return answer
        finally:
            seconds = asyncio.get_running_loop().time() - began
            emit.always(GitTimed(clock(), seconds, succeeded))

    return timed
