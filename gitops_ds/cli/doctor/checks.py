"""The checks of `doctor`: the prerequisites of an apply, one line each with advice.

It is read-only: permissions are queried, not tried.
"""

from __future__ import annotations

import asyncio
import platform
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Final

import msgspec

from gitops_ds import __version__
from gitops_ds.checks.schema import manifests
from gitops_ds.cli.doctor import repositories, result
from gitops_ds.cli.doctor import service as doctor_service
from gitops_ds.cli.doctor.arguments import DoctorArgs
from gitops_ds.cli.doctor.result import CheckVerdict, Line
from gitops_ds.core import errors
from gitops_ds.core.cluster import ClusterReader
from gitops_ds.core.objects import (
    CONFIG_MAP,
    CONTROLLER_REVISION,
    DAEMONSET,
    LEASE,
    NAMESPACE,
    NODE,
    POD,
    Key,
    Resource,
)
from gitops_ds.core.plain_text import listed
from gitops_ds.core.sources.bundle import Bundle
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import builtin_resources, kubernetes_types, kubernetes_versions
from gitops_ds.kube.client import connect
from gitops_ds.service.settings import service as settings
from gitops_ds.service.settings.service import Service
from gitops_ds.source.git import hardening
from gitops_ds.source.renderers import expand, process
from gitops_ds.source.sandbox import confine
from gitops_ds.yaml import nodes

OLDEST_GIT: Final = (2, 39)
_ROLES: Final = (
    "bind a ClusterRole with these permissions to the account of the kubeconfig "
    "(docs/guides/permissions.md lists them)"
)


async def examine(args: DoctorArgs) -> AsyncIterator[Line]:
    """The lines in the order in which problems should be fixed; never raises for a problem."""
    yield _versions()
    yield _yaml()
    yield _schemas()
    line, merged, service = _settings(args)
    yield line
    yield _git(await asyncio.to_thread(hardening.git_version))
    bundles: list[Bundle] = []
    async for line in repositories.examine(merged, service, bundles):
        yield line
    yield renderers(expand.program(), process.isolation(), has_landlock=confine.restricts_files())
    if service is not None:
        for line in doctor_service.files(service):
            yield line
        async for line in repositories.gate_lines(service.metrics, bundles):
            yield line
        for line in repositories.approver_lines(service.repositories, bundles):
            yield line
    async for line in _live(merged, service, bundles):
        yield line


def _versions() -> Line:
    return result.ok("versions", f"gitops-ds {__version__}, Python {platform.python_version()}")


def _yaml() -> Line:
    if nodes.c_parser_present():
        return result.ok("yaml", "the C parser is installed")
    return result.warning(
        "yaml",
        "no C parser: parsing is many times slower",
        "install the extra: pip install 'ruamel.yaml[oldlibyaml]'",
    )


def _schemas() -> Line:
    try:
        counts = {
            version: len(kubernetes_types.kinds(version))
            for version in kubernetes_versions.VERSIONS
        }
    except (OSError, ValueError, KeyError) as error:
        return result.bad(
            "schemas", f"the Kubernetes schemas can't be read: {error}", "reinstall gitops-ds"
        )
    return result.ok(
        "schemas",
        "Kubernetes "
        + ", ".join(f"{version} ({count} kinds)" for version, count in counts.items()),
    )


def _settings(args: DoctorArgs) -> tuple[Line, DoctorArgs, Service | None]:
    """The line; the options, with those of the file as defaults; and the settings of the file."""
    if args.settings is None:
        return (
            result.ok("settings", "no file named: options and GITOPS_DS_… variables count"),
            args,
            None,
        )
    try:
        service = settings.read(args.settings)
    except errors.SettingsError as error:
        return (
            result.bad(
                "settings",
                str(error),
                "fix the file; docs/reference/settings.md lists the settings",
            ),
            args,
            None,
        )
    theirs = service.cluster
    merged = replace(
        args,
        cluster=args.cluster or theirs.name,
        kubeconfig=args.kubeconfig or theirs.kubeconfig,
        context=args.context or theirs.context,
        state_namespace=theirs.namespace,
    )
    return result.ok("settings", f"{args.settings} is right"), merged, service


def _git(version: tuple[int, ...] | None) -> Line:
    advice = f"install git {'.'.join(map(str, OLDEST_GIT))} or newer"
    if version is None:
        return result.bad("git", "git is not on the PATH", advice)
    text = f"git {'.'.join(map(str, version))}"
    return (
        result.ok("git", text)
        if version >= OLDEST_GIT
        else result.bad("git", f"{text} is too old", advice)
    )


def renderers(program: tuple[str, ...] | None, isolation: str, *, has_landlock: bool) -> Line:
    """The program that builds kustomizations, and what it can reach. `isolation` is the way without
    a network, or `none`.
    """
    if program is None:
        advice = "install kustomize or kubectl if a repository has a kustomization.yaml"
        return result.warning("kustomize", "neither kustomize nor kubectl is on the PATH", advice)
    if isolation == "none":
        advice = (
            "allow seccomp filters or user namespaces; until then URLs are refused wherever a "
            "kustomization could fetch them"
        )
        return result.warning(
            "kustomize", f"{program[0]} can't be isolated from the network here", advice
        )
    built = f"kustomizations are built by {program[0]}, without a network ({isolation})"
    if not has_landlock:
        return result.warning(
            "kustomize",
            f"{built}, but charts and kustomizations can read the files of this machine: the "
            "kernel has no Landlock",
            "use a node whose kernel has it (Linux 5.13 or newer), or trust the authors",
        )
    return result.ok("kustomize", f"{built}, and without other files (Landlock)")


async def _live(
    args: DoctorArgs, service: Service | None, bundles: Sequence[Bundle]
) -> AsyncIterator[Line]:
    try:
        async with connect.reading(
            args.connection().naming(args.cluster), bundles[0].cluster if bundles else None
        ) as cluster:
            yield _version(await cluster.version())
            keys = [key for bundle in bundles for key in bundle.manifests]
            prunes = service is None or service.prunes
            state = args.connection().state_namespace
            async for line in rights(cluster, keys, state, prunes=prunes):
                yield line
            if service is not None and service.startup_taints is not None:
                yield await startup_taints(cluster)
            if service is not None and service.election.enabled is not False:
                yield await doctor_service.election(cluster, service, time.time())
    except (errors.ClusterError, errors.UsageError) as error:
        yield result.bad(
            "cluster",
            str(error),
            "`kubectl version` with the same kubeconfig and context should answer",
        )


def _version(version: str) -> Line:
    minor = ".".join(version.removeprefix("v").split(".")[:2])
    if minor in kubernetes_versions.VERSIONS:
        return result.ok("cluster", f"Kubernetes {version}")
    advice = (
        f"its manifests are checked by the schemas of {manifests.nearest_version(minor)}; "
        f"supported are {kubernetes_versions.RANGE}"
    )
    return result.warning(
        "cluster", f"Kubernetes {version} is not one that this version was tested with", advice
    )


class Right(msgspec.Struct, frozen=True, order=True):
    """A verb on the objects of a resource, in one namespace or (empty) in all."""

    verb: str
    resource: Resource
    namespace: str = ""

    def __str__(self) -> str:
        """The form of `kubectl auth can-i`."""
        plural = self.resource.plural + (f".{self.resource.group}" if self.resource.group else "")
        return f"{self.verb} {plural}" + (f" in {self.namespace}" if self.namespace else "")


def looking() -> tuple[Right, ...]:
    """The permissions to read a fleet; `watch` is for the service."""
    return tuple(
        Right(verb, resource)
        for resource in (DAEMONSET, CONTROLLER_REVISION, NODE, POD)
        for verb in ("list", "watch")
    )


def applying(keys: Iterable[Key]) -> tuple[Right, ...]:
    """The permissions for a server-side apply of these objects; without objects, of DaemonSets and
    ConfigMaps in all namespaces.
    """
    places = {
        (builtin_resources.RESOURCES.get((key.group, key.kind)), key.namespace) for key in keys
    }
    pairs = {(resource, namespace) for resource, namespace in places if resource is not None} or {
        (DAEMONSET, ""),
        (CONFIG_MAP, ""),
    }
    rights = {
        Right(verb, resource, namespace)
        for resource, namespace in pairs
        for verb in ("get", "create", "patch")
    }
    return tuple(sorted(rights | {Right("list", resource) for resource, _ in pairs}))


def remembering(namespace: str) -> tuple[Right, ...]:
    """The permissions for the state and the status of agents: ConfigMaps in the service's
    namespace.
    """
    return tuple(
        Right(verb, CONFIG_MAP, namespace)
        for verb in ("get", "list", "watch", "create", "patch", "delete")
    )


def leading(namespace: str) -> tuple[Right, ...]:
    """The permissions for an election."""
    return tuple(Right(verb, LEASE, namespace) for verb in ("get", "create", "update"))


def keeping_places() -> tuple[Right, ...]:
    """The permission to keep the places of the pods that a staged rollout replaces."""
    return (Right("patch", replace(POD, plural=f"{POD.plural}/status")),)


def pruning(keys: Iterable[Key], *, prunes: bool = True) -> tuple[Right, ...]:
    """The permissions for deletions: of objects that left Git if the service prunes, and always of
    unused content-named ConfigMaps.
    """
    places = {
        (builtin_resources.RESOURCES.get((key.group, key.kind)), key.namespace) for key in keys
    }
    resources = {
        (resource, namespace)
        for resource, namespace in places
        if resource is not None and resource != NAMESPACE
    } or {(DAEMONSET, ""), (CONFIG_MAP, "")}
    return tuple(
        sorted(
            Right("delete", resource, namespace)
            for resource, namespace in resources
            if prunes or resource == CONFIG_MAP
        )
    )


async def rights(
    cluster: ClusterReader, keys: Iterable[Key], namespace: str, *, prunes: bool = True
) -> AsyncIterator[Line]:
    """One line for each use of permissions. `keys`: the objects of the repository, `namespace`: of
    the state, `prunes`: whether objects that left Git are deleted. Raises ClusterError.

    https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access
    """
    named = tuple(keys)
    uses = (
        ("rights to look", looking(), CheckVerdict.BAD, _ROLES),
        ("rights to apply", applying(named), CheckVerdict.BAD, _ROLES),
        ("rights to remember", remembering(namespace), CheckVerdict.BAD, _ROLES),
        (
            "rights to lead",
            leading(namespace),
            CheckVerdict.WARNING,
            "needed by a service with an election; the settings may switch it off",
        ),
        (
            "rights to keep places",
            keeping_places(),
            CheckVerdict.WARNING,
            "without it other pods may take the place of a pod that a staged rollout replaces",
        ),
        (
            "rights to prune",
            pruning(named, prunes=prunes),
            CheckVerdict.WARNING,
            "needed for --prune (the component rights/pruning), and to collect unused ConfigMaps",
        ),
    )
    for name, rights, verdict, advice in uses:
        if rights:
            yield await _granted_line(cluster, rights, Line(name, verdict, "", advice))


async def startup_taints(cluster: ClusterReader) -> Line:
    """Whether the startup taints of nodes may be removed. Raises ClusterError."""
    advice = "add the component rights/startup-taints"
    denied = result.bad("rights to remove startup taints", "", advice)
    return await _granted_line(cluster, (Right("patch", NODE),), denied)


async def _granted_line(cluster: ClusterReader, rights: Sequence[Right], denied: Line) -> Line:
    """The line of some rights; `denied` is that of missing ones, without its message."""
    answers = await asyncio.gather(
        *(cluster.may(right.verb, right.resource, right.namespace) for right in rights)
    )
    missing = [right for right, allowed in zip(rights, answers, strict=True) if not allowed]
    if missing:
        return replace(denied, message=f"may not {listed(missing, 6)}")
    return result.ok(denied.name, _granted(len(rights)))


def _granted(number: int) -> str:
    return f"all {number} are granted" if number > 1 else "granted"


def as_json(lines: Iterable[Line]) -> dict[str, Any]:
    """The document of `doctor -o json`."""
    listed = list(lines)
    counts = Counter(line.verdict for line in listed)
    checks = [
        {"name": line.name, "verdict": line.verdict, "message": line.message, "advice": line.advice}
        for line in listed
    ]
    return {
        "apiVersion": "gitops-ds.io/v1",
        "kind": "Diagnosis",
        "summary": {verdict: counts[verdict] for verdict in CheckVerdict},
        "checks": checks,
    }
