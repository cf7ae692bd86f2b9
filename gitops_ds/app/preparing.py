"""Commits of all repositories, prepared one at a time by a process with limits of time and memory.

A commit may take a little time at once; one that needs more is tried again when no other waits. One that does not end within the
limits is a finding, known by its commit, and not tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import pickle
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final

from gitops_ds import errors
from gitops_ds.app import repositories
from gitops_ds.app.prepare_worker import Job
from gitops_ds.model import spans
from gitops_ds.model.bundle import Bundle, ClusterFacts
from gitops_ds.model.finding import Finding, Place, refusal
from gitops_ds.pipeline.prepare import Prepared
from gitops_ds.source import attempts, kept, limited_process
from gitops_ds.source.limited_process import Answer, Limits
from gitops_ds.source.limits import MIB
from gitops_ds.source.memory import Budget
from gitops_ds.validate.whole import Fleet

RULE: Final = "SRC015"
# The longer one has room for five programs that render for a minute each.
SECONDS: Final = (15.0, 330.0)
_LEAST_ANSWER: Final = 2 * MIB
_REMEMBERED: Final = 256
_MODULE: Final = "gitops_ds.app.prepare_worker"
_VERSION: Final = "attempt 1"


class Queue:
    """Lets one in at a time, those that take a little before those that take long, each in the order of their coming."""

    def __init__(self) -> None:
        self._busy = False
        self._waiting: list[tuple[bool, int, asyncio.Future[None]]] = []
        self._numbers = count()

    @contextlib.asynccontextmanager
    async def turn(self, *, long: bool) -> AsyncIterator[None]:
        """Waits for its turn."""
        if self._busy:
            ours: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiting, (long, next(self._numbers), ours))
            try:
                await ours
            except asyncio.CancelledError:
                if ours.done() and not ours.cancelled():
                    self._next()
                raise
        self._busy = True
        try:
            yield
        finally:
            self._next()

    def _next(self) -> None:
        self._busy = False
        while self._waiting:
            _, _, first = heapq.heappop(self._waiting)
            if not first.done():
                self._busy = True
                first.set_result(None)
                return


@dataclass(slots=True)
class Preparing:
    """The preparations of a service. `repositories` share what they may make; `seconds` are the limits of the two attempts."""

    budget: Budget
    repositories: int = 1
    seconds: tuple[float, ...] = SECONDS
    _queue: Queue = field(default_factory=Queue)
    _ended: OrderedDict[str, Finding] = field(default_factory=OrderedDict)

    async def prepared(self, job: Job) -> Prepared:
        """What the commit means; one that does not end within the limits has a finding that says so.

        Raises the errors of reading a repository, and UsageError for a cluster that is not there.
        """
        key = kept.key(_VERSION, job.where.url, job.path, job.cluster, job.commit, str(job.identity_only))
        if (known := self._ended.get(key)) is not None:
            return _rejected(job, known)
        notes = repositories.cache_directory("attempts")
        if not await asyncio.to_thread(attempts.begin, notes, key):
            answer = Answer(problem="has ended this service before, most likely by its use of memory")
        else:
            try:
                answer = await self._answer(job)
            finally:
                # Also when it was cut off by the end of the service: only what ends the process itself leaves a note.
                attempts.end(notes, key)
        if answer.problem:
            found = _finding(job, answer)
            self._ended[key] = found
            while len(self._ended) > _REMEMBERED:
                self._ended.popitem(last=False)
            return _rejected(job, found)
        made, stretches = pickle.loads(answer.data)  # noqa: S301  our own process wrote it
        spans.record(stretches)
        if isinstance(made, errors.GitopsError):
            raise made
        assert isinstance(made, Prepared)
        return made

    async def _answer(self, job: Job) -> Answer:
        most = max(_LEAST_ANSWER, self.budget.answers // max(1, self.repositories))
        request = pickle.dumps(replace(job, where=replace(job.where, login=None)))
        answer = Answer()
        for number, seconds in enumerate(self.seconds):
            async with self._queue.turn(long=number > 0):
                try:
                    answer = await limited_process.call(_MODULE, request, Limits(seconds, self.budget.worker, most))
                except OSError as error:
                    raise errors.SourceUnreachable(f"no process can be started: {error.strerror}") from None
            if not answer.timed_out:
                break
        return answer


def _finding(job: Job, answer: Answer) -> Finding:
    where = Place(answer.last, 1, 1) if answer.last else None
    at = f", at {answer.last}" if answer.last else ""
    message = (
        f"preparing commit {job.commit[:12]} {answer.problem}{at}: make the files smaller and simpler, name a smaller directory "
        "(repository.path), or give the pod more memory"
    )
    return refusal(RULE, message, where)


def _rejected(job: Job, finding: Finding) -> Prepared:
    bundle = Bundle(job.commit, ClusterFacts(job.cluster), {}, (finding,))
    return Prepared(bundle, (finding,), Fleet({}))
