"""What `doctor` looks at: everything that must be well before an apply can be, each as one line with what to do.

Nothing is written: rights are asked for, not tried.
"""

from __future__ import annotations

import asyncio
import contextlib
import platform
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from gitops_ds import __version__, errors
from gitops_ds.app import clusters, credentials, repositories
from gitops_ds.app.following import revision_of
from gitops_ds.kinds import openapi, served, yaml_nodes
from gitops_ds.model.bundle import Bundle
from gitops_ds.model.cluster import Cluster
from gitops_ds.model.objects import CONFIG_MAP, CONTROLLER_REVISION, DAEMONSET, NAMESPACE, NODE, POD, Key, Resource
from gitops_ds.model.snapshot import Snapshot
from gitops_ds.model.trust import Mode, Unverified
from gitops_ds.pipeline import prepare
from gitops_ds.settings import service as settings
from gitops_ds.settings.repository import RepositorySettings
from gitops_ds.settings.service import Service
from gitops_ds.source import address, expand, installed
from gitops_ds.source.repository import Repository
from gitops_ds.validate import kubernetes

OLDEST_GIT: Final = (2, 39)
_REVIEW: Final = served.RESOURCES["authorization.k8s.io", "SelfSubjectAccessReview"]
_ROLES: Final = "bind a ClusterRole with these rights to whom the kubeconfig names (docs/operations.md lists them)"


class Verdict(StrEnum):
    """How one thing is."""

    OK = "ok"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that was looked at, how it is, and what to do where it is not well."""

    name: str
    verdict: Verdict
    message: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to look at: the repository as named (None: the one around), a settings file, the cluster and its name in `clusters/`."""

    repository: str | None = None
    path: str = ""
    settings: str | None = None
    cluster: str = ""
    connection: clusters.Connection = field(default_factory=clusters.Connection)


async def examine(wanted: Wanted) -> AsyncIterator[Line]:
    """The lines in the order in which trouble is best mended; never raises for what it finds."""
    yield _versions()
    yield _yaml()
    yield _schemas()
    told, merged, service = _settings(wanted)
    yield told
    yield _git(await asyncio.to_thread(installed.git_version))
    if service is not None:
        async for line in _access(service, merged.connection):
            yield line
    told, snapshot = await _repository(merged, service)
    yield told
    yield _kustomize()
    bundle: Bundle | None = None
    if snapshot is not None:
        told, bundle = _manifests(snapshot, merged.cluster)
        yield told
    async for line in _live(merged, bundle):
        yield line


def _versions() -> Line:
    return Line("versions", Verdict.OK, f"gitops-ds {__version__}, Python {platform.python_version()}")


def _yaml() -> Line:
    if yaml_nodes.c_parser_present():
        return Line("yaml", Verdict.OK, "the C parser is there")
    return Line(
        "yaml",
        Verdict.WARNING,
        "no C parser: reading is many times slower",
        "install the extra: pip install 'ruamel.yaml[oldlibyaml]'",
    )


def _schemas() -> Line:
    try:
        counts = {version: len(openapi.kinds(version)) for version in openapi.VERSIONS}
    except (OSError, ValueError, KeyError) as error:
        return Line("schemas", Verdict.BAD, f"the Kubernetes schemas can't be read: {error}", "install gitops-ds anew")
    return Line("schemas", Verdict.OK, "Kubernetes " + ", ".join(f"{version} ({count} kinds)" for version, count in counts.items()))


def _settings(wanted: Wanted) -> tuple[Line, Wanted, Service | None]:
    """The line; what is wanted, with the file's words where the command line has none; and the file's settings."""
    if wanted.settings is None:
        return Line("settings", Verdict.OK, "no file named: options and GITOPS_DS_… variables count"), wanted, None
    try:
        found = settings.read(wanted.settings)
    except errors.SettingsError as error:
        return Line("settings", Verdict.BAD, str(error), "mend the file; docs/operations.md lists the settings"), wanted, None
    theirs, ours = found.cluster, wanted.connection
    connection = clusters.Connection(ours.kubeconfig or theirs.kubeconfig, ours.context or theirs.context, theirs.namespace)
    merged = replace(wanted, cluster=wanted.cluster or theirs.name, connection=connection)
    return Line("settings", Verdict.OK, f"{wanted.settings} is right"), merged, found


def _git(version: tuple[int, ...] | None) -> Line:
    advice = f"install git {'.'.join(map(str, OLDEST_GIT))} or newer"
    if version is None:
        return Line("git", Verdict.BAD, "git is not on the PATH", advice)
    text = f"git {'.'.join(map(str, version))}"
    return Line("git", Verdict.OK, text) if version >= OLDEST_GIT else Line("git", Verdict.BAD, f"{text} is too old", advice)


async def _repository(wanted: Wanted, service: Service | None) -> tuple[Line, Snapshot | None]:
    try:
        if service is not None and service.repositories and wanted.repository is None:
            display, snapshot = await _followed(service, wanted.connection)
        else:
            named = repositories.named(wanted.repository, wanted.path)
            display, snapshot = named.display, await repositories.snapshot(named, None, committed=named.where is not None)
    except errors.GitopsError as error:
        return Line("repository", Verdict.BAD, str(error), "name it with -C, and see that it can be read and has a commit"), None
    if snapshot.commit is None:
        advice = "only commits are applied: git init, git add, git commit"
        return Line("repository", Verdict.WARNING, f"{display} is not in Git", advice), snapshot
    return Line("repository", Verdict.OK, f"{display} at {snapshot.commit.id[:12]}, {len(snapshot.files)} files"), snapshot


async def _followed(service: Service, connection: clusters.Connection) -> tuple[str, Snapshot]:
    """The repository of the settings, with their credentials, as the service would see it."""
    told = service.repositories[0]
    where = address.parse(told.url, allow_local=told.allow_local)
    async with contextlib.AsyncExitStack() as stack:
        secrets = None
        if any("secretRef" in entry for entry in told.credentials):
            cluster = await stack.enter_async_context(clusters.opened(connection))
            secrets = credentials.Secrets(cluster, service.cluster.namespace, time.time)
        own = credentials.Keyring(told, where, secrets)
        repository = await stack.enter_async_context(
            Repository(where, repositories.cache_directory(), own, allowed=service.allowed)
        )
        return where.display, await repositories.snapshot_of(repository, await repository.tip(revision_of(told)), told.path)


async def _access(service: Service, connection: clusters.Connection) -> AsyncIterator[Line]:
    """For each repository of the settings: the credentials as they are now, and whether its tip is signed as it has to be."""
    async with contextlib.AsyncExitStack() as stack:
        secrets = None
        try:
            if any("secretRef" in entry for told in service.repositories for entry in told.credentials):
                cluster = await stack.enter_async_context(clusters.opened(connection))
                secrets = credentials.Secrets(cluster, service.cluster.namespace, time.time)
        except errors.ClusterError as error:
            yield Line("credentials", Verdict.BAD, f"a Secret can't be read: {error}", "see the line of the cluster")
            return
        for told in service.repositories:
            where = address.parse(told.url, allow_local=told.allow_local)
            own = credentials.Keyring(told, where, secrets)
            if told.credentials:
                yield await _told("credentials", f"those for {where.display} can be read", credentials.trouble(own, time.time()))
            if told.verify.mode is not Mode.NONE:
                yield await _told("signatures", f"the tip of {where.display} is signed", _untrusted(told, own, service))


async def _told(name: str, well: str, looking: Awaitable[str]) -> Line:
    """The line for a look that tells trouble in words, or nothing."""
    try:
        trouble = await looking
    except errors.GitopsError as error:
        trouble = str(error)
    advice = "docs/repository-access.md tells what each setting names"
    return Line(name, Verdict.BAD, trouble, advice) if trouble else Line(name, Verdict.OK, well)


async def _untrusted(told: RepositorySettings, own: credentials.Keyring, service: Service) -> str:
    trust, wanted = credentials.trust_of(told), revision_of(told)
    async with Repository(own.where, repositories.cache_directory(), own, allowed=service.allowed) as repository:
        tip = await repository.tip(wanted)
        await repository.fetch(tip)
        found = await repository.verify(wanted, tip, None, trust)
        return found.message if isinstance(found, Unverified) else ""


def _kustomize() -> Line:
    found = expand.program()
    if found is None:
        advice = "install kustomize or kubectl if a repository has a kustomization.yaml"
        return Line("kustomize", Verdict.WARNING, "neither kustomize nor kubectl is on the PATH", advice)
    return Line("kustomize", Verdict.OK, f"kustomizations are built by {found[0]}")


def _manifests(snapshot: Snapshot, cluster: str) -> tuple[Line, Bundle | None]:
    try:
        found = prepare.prepare(snapshot, cluster=cluster)
    except errors.GitopsError as error:
        return Line("manifests", Verdict.BAD, str(error)), None
    if not found.deployable:
        refused = sum(finding.refused for finding in found.findings)
        return Line("manifests", Verdict.BAD, f"{refused} findings stand in the way", "`gitops-ds check` tells each"), found.bundle
    return Line("manifests", Verdict.OK, f"{len(found.bundle.manifests)} objects can be applied"), found.bundle


async def _live(wanted: Wanted, bundle: Bundle | None) -> AsyncIterator[Line]:
    try:
        async with clusters.opened(wanted.connection, bundle.cluster if bundle else None) as cluster:
            yield _version(await cluster.version())
            keys = bundle.manifests.keys() if bundle else ()
            async for line in rights(cluster, keys, wanted.connection.state_namespace):
                yield line
    except errors.ClusterError as error:
        yield Line("cluster", Verdict.BAD, str(error), "`kubectl version` with the same kubeconfig and context should answer")


def _version(version: str) -> Line:
    minor = ".".join(version.removeprefix("v").split(".")[:2])
    if minor in openapi.VERSIONS:
        return Line("cluster", Verdict.OK, f"Kubernetes {version}")
    oldest, newest = openapi.VERSIONS[0], openapi.NEWEST
    advice = f"its manifests are checked by the schemas of {kubernetes.nearest(minor)}; supported are {oldest} to {newest}"
    return Line("cluster", Verdict.WARNING, f"Kubernetes {version} is not one that this version was tested with", advice)


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """A verb on the objects of a resource, in one namespace or (empty) in all."""

    verb: str
    resource: Resource
    namespace: str = ""

    def __str__(self) -> str:
        """As `kubectl auth can-i` puts it."""
        plural = self.resource.plural + (f".{self.resource.group}" if self.resource.group else "")
        return f"{self.verb} {plural}" + (f" in {self.namespace}" if self.namespace else "")


def looking() -> tuple[Right, ...]:
    """What reading a fleet takes; `watch` is the service's."""
    return tuple(Right(verb, resource) for resource in (DAEMONSET, CONTROLLER_REVISION, NODE, POD) for verb in ("list", "watch"))


def applying(keys: Iterable[Key]) -> tuple[Right, ...]:
    """What a server-side apply of these objects takes; without any, of DaemonSets and ConfigMaps anywhere."""
    places = {(served.RESOURCES.get((key.group, key.kind)), key.namespace) for key in keys}
    known = {(resource, namespace) for resource, namespace in places if resource is not None} or {(DAEMONSET, ""), (CONFIG_MAP, "")}
    found = {Right(verb, resource, namespace) for resource, namespace in known for verb in ("get", "create", "patch")}
    return tuple(sorted(found | {Right("list", resource) for resource, _ in known}))


def remembering(namespace: str) -> tuple[Right, ...]:
    """What keeping the state takes: ConfigMaps in the service's namespace."""
    return tuple(Right(verb, CONFIG_MAP, namespace) for verb in ("get", "create", "update", "patch"))


def pruning(keys: Iterable[Key]) -> tuple[Right, ...]:
    """What deleting takes: of what left Git under --prune, and always of ConfigMaps with content names that nobody uses."""
    places = {(served.RESOURCES.get((key.group, key.kind)), key.namespace) for key in keys}
    known = {(resource, namespace) for resource, namespace in places if resource is not None and resource != NAMESPACE}
    return tuple(
        sorted(Right("delete", resource, namespace) for resource, namespace in known or {(DAEMONSET, ""), (CONFIG_MAP, "")})
    )


async def rights(cluster: Cluster, keys: Iterable[Key], namespace: str) -> AsyncIterator[Line]:
    """One line for each use of rights. `keys`: the objects of the repository, `namespace`: of the state. Raises ClusterError.

    https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access
    """
    named = tuple(keys)
    uses = (
        ("rights to look", looking(), Verdict.BAD, _ROLES),
        ("rights to apply", applying(named), Verdict.BAD, _ROLES),
        ("rights to remember", remembering(namespace), Verdict.BAD, _ROLES),
        ("rights to prune", pruning(named), Verdict.WARNING, "needed for --prune, and to collect ConfigMaps that nobody uses"),
    )
    for name, asked, verdict, advice in uses:
        answers = await asyncio.gather(*(_may(cluster, right) for right in asked))
        missing = [right for right, allowed in zip(asked, answers, strict=True) if not allowed]
        if missing:
            yield Line(name, verdict, f"may not {_list(missing)}", advice)
        else:
            yield Line(name, Verdict.OK, f"all {len(asked)} are granted")


def _list(missing: list[Right]) -> str:
    shown = ", ".join(map(str, missing[:6]))
    return shown + (f" and {len(missing) - 6} more" if len(missing) > 6 else "")


async def _may(cluster: Cluster, right: Right) -> bool:
    asked = {"verb": right.verb, "group": right.resource.group, "resource": right.resource.plural, "namespace": right.namespace}
    body = {"apiVersion": _REVIEW.api_version, "kind": _REVIEW.kind, "metadata": {}, "spec": {"resourceAttributes": asked}}
    told = await cluster.create(_REVIEW, body)
    return bool((told.get("status") or {}).get("allowed"))


def as_json(lines: Iterable[Line]) -> dict[str, Any]:
    """The document of `doctor -o json`."""
    told = list(lines)
    counts = Counter(line.verdict for line in told)
    checks = [{"name": line.name, "verdict": line.verdict, "message": line.message, "advice": line.advice} for line in told]
    return {
        "apiVersion": "gitops-ds.io/v1",
        "kind": "Diagnosis",
        "summary": {verdict: counts[verdict] for verdict in Verdict},
        "checks": checks,
    }
