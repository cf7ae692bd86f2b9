"""The process that prepares one commit, started by `prepare_process`.

It reads only the local copy of the repository.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import pickle
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Set
from pathlib import Path

import msgspec

from gitops_ds.core import errors, progress, spans
from gitops_ds.core.objects import CommitId, Digest
from gitops_ds.core.rollouts.template_cause import RenderedCommit
from gitops_ds.core.sources.repository_limits import AllowedRenderers, RepositoryLimits
from gitops_ds.core.sources.source_tree import CachedResults
from gitops_ds.core.values import replace
from gitops_ds.deploy.pipeline import open_repository, prepare
from gitops_ds.deploy.pipeline.prepare import Prepared
from gitops_ds.rollouts.causes import template_digests
from gitops_ds.source.git import object_reader, tree
from gitops_ds.source.git.address import Address
from gitops_ds.source.git.bare_repository import BareRepository
from gitops_ds.source.render import bundle as rendering
from gitops_ds.source.sandbox import cpu_timer, limited_process

MOST_FINDINGS = 1000
_ABANDONED = 3600.0  # seconds


class Job(msgspec.Struct, frozen=True):
    """The fetched commit to prepare, for a cluster. `clean` is `CachedResults.clean` of an earlier
    commit.

    `identity_only`: without manifests, only the names of the repository and the cluster. With
    `rendered` commits in place of the one, only their digests: of manifests and templates, also if
    they have blocking findings.
    """

    where: Address
    cache: Path
    limits: RepositoryLimits
    allowed: AllowedRenderers
    commit: CommitId
    path: str
    cluster: str
    clean: Mapping[str, Set[Digest]]
    identity_only: bool = False
    rendered: tuple[CommitId, ...] = ()


def work(request: bytes) -> bytes:
    """The Prepared of a Job, or the digests of commits, or the GitopsError that prevents it, and
    the spans of the work; pickled.
    """
    job: Job = pickle.loads(request)  # noqa: S301  our own process
    cpu_timer.install()
    progress.listener.set(limited_process.note)
    stretches: list[spans.EndedSpan] = []
    spans.listener.set(functools.partial(_measured, stretches))
    # A later process deletes files that programs leave when this one is killed.
    tempfile.tempdir = str(_scratch(job.cache))
    try:
        result: Prepared | Mapping[CommitId, RenderedCommit] | errors.GitopsError = (
            _digests(job) if job.rendered else _slim(_prepared(job))
        )
    except errors.GitopsError as error:
        result = error
    return pickle.dumps((result, tuple(stretches)), pickle.HIGHEST_PROTOCOL)


@contextlib.contextmanager
def _measured(stretches: list[spans.EndedSpan], name: str, _: Mapping[str, str]) -> Iterator[None]:
    began = time.time_ns()
    try:
        yield
    finally:
        stretches.append(spans.EndedSpan(name, began, time.time_ns()))


def _prepared(job: Job) -> Prepared:
    bare = BareRepository(job.where, job.cache, job.limits, existing=True)
    try:
        selection = tree.names_only if job.identity_only else tree.manifests
        snapshot = object_reader.snapshot(bare, job.commit, job.path, selection)
    finally:
        bare.close()
    if job.identity_only:
        return prepare.prepare(
            replace(snapshot, findings=()), cluster=job.cluster, files=False, advice=False
        )
    expanded = asyncio.run(open_repository.expanded(snapshot, job.allowed))
    return prepare.prepare(
        replace(expanded, cached=CachedResults(clean=job.clean)), cluster=job.cluster, advice=False
    )


def _digests(job: Job) -> Mapping[CommitId, RenderedCommit]:
    """What the commits render to, without those that can't be rendered at all."""
    bare = BareRepository(job.where, job.cache, job.limits, existing=True)
    found = {}
    try:
        for commit in job.rendered:
            with contextlib.suppress(errors.GitopsError):
                snapshot = object_reader.snapshot(bare, commit, job.path)
                expanded = asyncio.run(open_repository.expanded(snapshot, job.allowed))
                bundle = rendering.render(expanded, cluster=job.cluster)
                found[commit] = template_digests.rendered(bundle)
    finally:
        bare.close()
    return found


def _slim(result: Prepared) -> Prepared:
    """The result without its caches, and without manifests if it is not deployable."""
    if result.deployable:
        return replace(
            result, cluster_context=replace(result.cluster_context)
        )  # a copy has empty caches
    bundle = replace(result.bundle, manifests={}, findings=())
    blocking = [finding for finding in result.findings if finding.refused]
    return replace(
        result,
        bundle=bundle,
        findings=tuple(blocking[:MOST_FINDINGS]),
        cluster_context=replace(result.cluster_context, manifests={}),
    )


def _scratch(cache: Path) -> Path:
    directory = cache.parent / "scratch"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for old in directory.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - old.stat().st_mtime > _ABANDONED:
                shutil.rmtree(old)
    return directory


if __name__ == "__main__":
    os.umask(0o077)
    limited_process.serve(work)
