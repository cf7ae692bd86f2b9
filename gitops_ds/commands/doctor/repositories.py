"""The checks of `doctor` for repositories: the one in the arguments, or all in the settings, which
are read like the service does.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Awaitable

import msgspec

from gitops_ds import errors
from gitops_ds.client import connect
from gitops_ds.commands.doctor import result, signing_keys
from gitops_ds.commands.doctor.result import CheckVerdict, DoctorOptions, Line
from gitops_ds.git import address
from gitops_ds.git.repository import Repository
from gitops_ds.model.objects import short
from gitops_ds.model.plain_text import counted
from gitops_ds.model.sources.bundle import Bundle
from gitops_ds.model.sources.signatures import Mode, Unverified
from gitops_ds.model.sources.source_tree import SourceTree
from gitops_ds.pipeline import open_repository, prepare
from gitops_ds.service.git import git_auth
from gitops_ds.service.git.git_source import revision_of
from gitops_ds.settings.repository import RepositorySettings
from gitops_ds.settings.service import Service

_ADVICE = "docs/repository-access.md describes each setting"
_UNREAD = "set it with -C; it must be readable and have a commit"


async def examine(
    options: DoctorOptions, service: Service | None, bundles: list[Bundle]
) -> AsyncIterator[Line]:
    """Their lines; adds the bundle of each to `bundles`."""
    if service is not None and service.repositories:
        async for line in _followed(options, service, bundles):
            yield line
    if service is None or not service.repositories or options.repository is not None:
        try:
            named = open_repository.named(options.repository, options.path)
        except errors.UsageError as error:
            yield Line("repository", CheckVerdict.BAD, str(error), _UNREAD)
            return
        look = open_repository.snapshot(named, None, committed=named.where is not None)
        async for line in _read(named.display, look, options.cluster, bundles):
            yield line


async def _followed(
    options: DoctorOptions, service: Service, bundles: list[Bundle]
) -> AsyncIterator[Line]:
    async with contextlib.AsyncExitStack() as stack:
        secrets = None
        try:
            if any(
                entry.secret_ref is not None
                for repository in service.repositories
                for entry in repository.credentials
            ):
                cluster = await stack.enter_async_context(connect.opened(options.connection))
                secrets = git_auth.ClusterSecrets(cluster, service.cluster.namespace, time.time)
        except errors.ClusterError as error:
            yield Line(
                "credentials",
                CheckVerdict.BAD,
                f"a Secret can't be read: {error}",
                "see the line of the cluster",
            )
        for settings in service.repositories:
            try:
                where = address.parse(settings.url, allow_local=settings.allow_local)
                one = _Followed(settings, git_auth.Keyring(settings, where, secrets), service)
            except errors.GitopsError as error:
                yield Line("repository", CheckVerdict.BAD, str(error), _ADVICE)
                continue
            async for line in one.trusted():
                yield line
            if options.repository is None:
                async for line in _read(where.display, one.snapshot(), options.cluster, bundles):
                    yield line


class _Followed(msgspec.Struct, frozen=True):
    """One repository of the settings, and its credentials."""

    settings: RepositorySettings
    own: git_auth.Keyring
    service: Service

    async def trusted(self) -> AsyncIterator[Line]:
        """The lines of its present credentials and keys, and of the required signature of its
        tip.
        """
        display, now = self.own.where.display, time.time()
        if self.settings.credentials:
            well = f"those for {display} can be read"
            yield await result.probe("credentials", well, git_auth.trouble(self.own, now), _ADVICE)
        if self.settings.verify.mode is not Mode.NONE:
            for line in await signing_keys.lines(self.settings, display, now):
                yield line
            yield await result.probe(
                "signatures", f"the tip of {display} is signed", self._untrusted(), _ADVICE
            )

    async def _untrusted(self) -> str:
        trust, revision = git_auth.trust_of(self.settings), revision_of(self.settings)
        async with self._opened() as repository:
            tip = await repository.tip(revision)
            await repository.fetch(tip)
            verification = await repository.verify(revision, tip, None, trust)
            return verification.message if isinstance(verification, Unverified) else ""

    async def snapshot(self) -> SourceTree:
        """The snapshot of its tip, as for the service."""
        async with self._opened() as repository:
            return await open_repository.snapshot_of(
                repository, await repository.tip(revision_of(self.settings)), self.settings.path
            )

    def _opened(self) -> Repository:
        return Repository(
            self.own.where,
            open_repository.cache_directory(),
            self.own,
            allowed=self.service.allowed,
        )


async def _read(
    display: str, look: Awaitable[SourceTree], cluster: str, bundles: list[Bundle]
) -> AsyncIterator[Line]:
    """The lines of a repository and of its manifests."""
    try:
        snapshot = await look
    except errors.GitopsError as error:
        yield Line("repository", CheckVerdict.BAD, str(error), _UNREAD)
        return
    if snapshot.commit is None:
        advice = "only commits are applied: git init, git add, git commit"
        yield Line("repository", CheckVerdict.WARNING, f"{display} is not in Git", advice)
    else:
        yield Line(
            "repository",
            CheckVerdict.OK,
            f"{display} at {short(snapshot.commit.id)}, {counted(len(snapshot.files), 'file')}",
        )
    try:
        prepared = prepare.prepare(snapshot, cluster=cluster)
    except errors.GitopsError as error:
        yield Line("manifests", CheckVerdict.BAD, str(error))
        return
    bundles.append(prepared.bundle)
    if prepared.deployable:
        count = len(prepared.bundle.manifests)
        advice = "" if count else "add agents/, or `manifests:` to gitops-ds.yaml"
        yield Line(
            "manifests",
            CheckVerdict.OK if count else CheckVerdict.WARNING,
            f"{counted(count, 'object')} can be applied",
            advice,
        )
    else:
        refused = sum(finding.refused for finding in prepared.findings)
        yield Line(
            "manifests",
            CheckVerdict.BAD,
            f"{counted(refused, 'finding')} must be fixed first",
            "`gitops-ds check` lists them",
        )
