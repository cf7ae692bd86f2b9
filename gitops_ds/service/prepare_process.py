"""Prepares the commits of all repositories and the templates of the cluster, one at a time, in a
process with limits of time and memory.

The first attempt of a commit is short. A long one follows when no other commit waits; it is ended
for a later commit of another repository, and begins again. A commit that exceeds the limits has a
finding, and is not tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from gitops_ds.checks.engine.contexts import ClusterContext
from gitops_ds.core import errors, spans
from gitops_ds.core.finding import Finding, Place
from gitops_ds.core.objects import CommitId, short
from gitops_ds.core.rollouts.template_cause import RenderedCommit
from gitops_ds.core.sources.bundle import Bundle, ClusterFacts
from gitops_ds.core.sources.repository_limits import MIB, TOGETHER
from gitops_ds.core.values import replace
from gitops_ds.deploy.pipeline import open_repository
from gitops_ds.deploy.pipeline.prepare import Prepared
from gitops_ds.deploy.templates.template_object import RenderedTemplates, TemplateObject
from gitops_ds.deploy.templates.template_selector import TemplateSelector
from gitops_ds.service.prepare_worker import Job
from gitops_ds.source.renderers import disk_cache
from gitops_ds.source.rules import OVER_LIMIT
from gitops_ds.source.sandbox import limited_process
from gitops_ds.source.sandbox.limited_process import ProcessLimits, ProcessResult
from gitops_ds.source.sandbox.memory import Budget
from gitops_ds.source.sandbox.turns import Turns

# The longer one suffices for five rendering programs of a minute each.
SECONDS: Final = (15.0, 330.0)
_BESIDE_RENDERS: Final = 30.0  # seconds of all other work on a commit, in the longer attempt
_LEAST_ANSWER: Final = 2 * MIB
_REMEMBERED: Final = 256
_OBJECTS_TOGETHER: Final = 50  # objects with templates in one process
_COMMITS: Final = "gitops_ds.service.prepare_worker"
_TEMPLATES: Final = "gitops_ds.service.template_worker"
_VERSION: Final = "attempt 1"


class _Work(msgspec.Struct, frozen=True):
    """The request of a process, and the seconds of its attempts. `who` is the address of the
    repository, empty for templates. `private` content is not written to disk or messages.
    """

    who: str
    module: str
    request: bytes
    seconds: tuple[float, ...]
    private: bool = False


@dataclass(slots=True)
class Preparing:
    """The preparations of a service. `repositories` is the number of repositories that share the
    limit on results; `seconds` are the limits of the two attempts.

    Templates have only the first attempt: an object has at most 1 MiB.
    """

    budget: Budget
    repositories: int = 1
    seconds: tuple[float, ...] = SECONDS
    call: Callable[..., Awaitable[ProcessResult]] = limited_process.call
    _turns: Turns = field(default_factory=Turns)
    _limit_at: float | None = (
        None  # the end of the running attempt's time, on the event loop's clock
    )
    _ended: OrderedDict[str, ProcessResult] = field(default_factory=OrderedDict)

    @property
    def seconds_over_limit(self) -> float:
        """For how many seconds the running attempt has exceeded its limit; 0.0 if it has not."""
        if self._limit_at is None:
            return 0.0
        return max(0.0, asyncio.get_running_loop().time() - self._limit_at)

    def attempts(self, job: Job) -> tuple[float, ...]:
        """The time limits of a commit; the last one suffices for all renders of it."""
        *shorter, longest = self.seconds
        return (*shorter, max(longest, TOGETHER * job.allowed.seconds + _BESIDE_RENDERS))

    async def prepared(self, job: Job) -> Prepared:
        """The prepared commit; one that exceeds the limits has a finding.

        Raises the errors of reading a repository, and UsageError for an unknown cluster.
        """
        answer = await self._limited(_key(job), self._commits(job))
        if answer.problem:
            advice = (
                "make the files smaller and simpler, name a smaller directory (repository.path), "
                "or give the pod more memory"
            )
            return _rejected(job, _finding(f"commit {short(job.commit)}", answer, advice))
        result = _result(answer)
        assert isinstance(result, Prepared)
        return result

    async def digests(self, job: Job) -> Mapping[CommitId, RenderedCommit]:
        """What the commits `rendered` of a job render to, without those that can't be rendered;
        none if they exceed the limits together. Raises SourceError.
        """
        answer = await self._limited(_key(job), self._commits(job))
        found: Mapping[CommitId, RenderedCommit] = {} if answer.problem else _result(answer)
        return found

    def _commits(self, job: Job) -> _Work:
        return _Work(job.where.url, _COMMITS, _request(job), self.attempts(job))

    async def rendered(
        self, objects: Sequence[TemplateObject], chosen: TemplateSelector
    ) -> Mapping[CommitId, RenderedTemplates]:
        """The rendered templates of objects, by their commits; one that exceeds the limits has a
        finding.

        Raises SourceUnreachable if no process can be started.
        """
        rendered: dict[CommitId, RenderedTemplates] = {}
        for start in range(0, len(objects), _OBJECTS_TOGETHER):
            rendered |= await self._together(
                tuple(objects[start : start + _OBJECTS_TOGETHER]), chosen
            )
        return rendered

    async def _together(
        self, some: tuple[TemplateObject, ...], chosen: TemplateSelector
    ) -> dict[CommitId, RenderedTemplates]:
        """As `rendered`, in one process; one by one if they exceed the limits together, to find
        the object that does.
        """
        key = disk_cache.key(
            _VERSION, *(part for request in some for part in (request.uid, request.commit))
        )
        private = any(request.secret for request in some)
        answer = await self._limited(
            key,
            _Work("", _TEMPLATES, pickle.dumps((some, chosen)), self.seconds[:1], private),
        )
        if not answer.problem:
            rendered: dict[CommitId, RenderedTemplates] = pickle.loads(answer.data)  # noqa: S301  our own process
            return rendered
        if len(some) == 1:
            return {
                some[0].commit: RenderedTemplates(
                    {},
                    (),
                    (_finding(some[0].source, answer, "make its templates smaller and simpler"),),
                )
            }
        alone = [await self._together((request,), chosen) for request in some]
        return {commit: taken for rendered in alone for commit, taken in rendered.items()}

    async def _limited(self, key: str, work: _Work) -> ProcessResult:
        """The result of the work; a problem is cached under the key."""
        if (problem := self._ended.get(key)) is not None:
            return problem
        notes = open_repository.cache_directory("attempts")
        if not await asyncio.to_thread(begin_attempt, notes, key):
            answer = ProcessResult(
                problem="has ended this service before, most likely by its use of memory"
            )
        else:
            try:
                answer = await self._answer(work)
            finally:
                # Also after a cancellation: only the end of the process itself leaves a note.
                end_attempt(notes, key)
        if answer.problem:
            self._ended[key] = answer
            while len(self._ended) > _REMEMBERED:
                self._ended.popitem(last=False)
        return answer

    async def _answer(self, work: _Work) -> ProcessResult:
        answer = ProcessResult()
        for number, seconds in enumerate(work.seconds):
            attempt, is_long = partial(self._attempt, work, seconds), number > 0
            kept = 0.0 if is_long else seconds
            answer = await self._turns.run(work.who, attempt, kept=kept, long=is_long)
            if not answer.timed_out:
                break
        return answer

    async def _attempt(self, work: _Work, seconds: float) -> ProcessResult:
        most = max(_LEAST_ANSWER, self.budget.answers // max(1, self.repositories))
        limits = ProcessLimits(seconds, self.budget.worker, most)
        self._limit_at = asyncio.get_running_loop().time() + seconds
        try:
            return await self.call(work.module, work.request, limits, private=work.private)
        except OSError as error:
            raise errors.SourceUnreachable(f"no process can be started: {error.strerror}") from None
        finally:
            self._limit_at = None


def _key(job: Job) -> str:
    parts = (job.commit, str(job.identity_only), *job.rendered)
    return disk_cache.key(_VERSION, job.where.url, job.path, job.cluster, *parts)


def _request(job: Job) -> bytes:
    return pickle.dumps(replace(job, where=replace(job.where, login=None)))


def _result(answer: ProcessResult) -> Any:
    """The result of a worker. Raises the error that it ended with."""
    result, stretches = pickle.loads(answer.data)  # noqa: S301  our own process
    spans.record(stretches)
    if isinstance(result, errors.GitopsError):
        raise result
    return result


def _finding(what: str, answer: ProcessResult, advice: str) -> Finding:
    where = Place(answer.last, 1, 1) if answer.last else None
    at = f", at {answer.last}" if answer.last else ""
    return OVER_LIMIT.refusal(f"preparing {what} {answer.problem}{at}: {advice}", where)


def _rejected(job: Job, finding: Finding) -> Prepared:
    bundle = Bundle(job.commit, ClusterFacts(job.cluster), {}, (finding,))
    return Prepared(bundle, (finding,), ClusterContext({}))


_NOTE_KEPT = 3600.0  # seconds
_MOST_ATTEMPTS = 2  # attempts: the loss of a node may have ended one


def begin_attempt(directory: Path, key: str) -> bool:
    """Notes an attempt on disk, so that work that ends the process is not repeated indefinitely;
    False after too many unfinished ones.

    The directory is in the cache, which outlives a container but not its pod. It may disappear or
    fail at any time.
    """
    note = directory / key
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in directory.iterdir():
            with contextlib.suppress(OSError):
                if abs(time.time() - old.stat().st_mtime) > _NOTE_KEPT:
                    old.unlink()
        began = note.stat().st_size if note.exists() else 0
        if began >= _MOST_ATTEMPTS:
            return False
        with note.open("ab") as file:
            file.write(b".")
    except OSError:
        return True
    return True


def end_attempt(directory: Path, key: str) -> None:
    """Removes the note of an attempt that has ended."""
    with contextlib.suppress(OSError):
        (directory / key).unlink()
