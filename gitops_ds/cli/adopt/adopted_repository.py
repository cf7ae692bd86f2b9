"""Creates a repository from the DaemonSets of a cluster: minimal manifests, with the objects that
they need.

Defaults of the API server are omitted if the API server would set the same values again, so that an
apply of the repository restarts nothing.
"""

from __future__ import annotations

import asyncio
import difflib
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import msgspec

from gitops_ds.checks.cluster import references
from gitops_ds.checks.engine.rule import pod, section, template
from gitops_ds.core import errors, names
from gitops_ds.core.cluster import ClusterReader, Selection
from gitops_ds.core.objects import DAEMONSET, NAMESPACE, Body, Key, key_of
from gitops_ds.kube.apimachinery import builtin_resources, defaults
from gitops_ds.ownership import object_owner
from gitops_ds.yaml import writer

_RBAC = "rbac.authorization.k8s.io"
_IN_SPACE = (
    ("", "ConfigMap"),
    ("", "ServiceAccount"),
    ("", "Service"),
    (_RBAC, "Role"),
    (_RBAC, "RoleBinding"),
)
_IN_CLUSTER = (
    ("", "Namespace"),
    ("scheduling.k8s.io", "PriorityClass"),
    (_RBAC, "ClusterRole"),
    (_RBAC, "ClusterRoleBinding"),
)
# Objects of every cluster, or that its API server restores.
_THERE = ("kube-", "system-", "system:")
_GIVEN = frozenset(("default", "cluster-admin", "admin", "edit", "view"))
_SERVERS = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
    "selfLink",
    "finalizers",
)
_NOTED = frozenset(
    (
        names.TEMPLATE_GENERATION,
        names.CHANGE_CAUSE,
        "kubectl.kubernetes.io/last-applied-configuration",
    )
)

# The domains of labels and annotations of other tools. They are kept in templates, where a change
# would replace every pod.
_MARKS = frozenset(
    (
        names.DOMAIN,
        "applyset.kubernetes.io",
        "argocd.argoproj.io",
        "helm.sh",
        "helm.toolkit.fluxcd.io",
        "kapp.k14s.io",
        "kustomize.toolkit.fluxcd.io",
        "meta.helm.sh",
    )
)
_MANAGED_BY = ("app.kubernetes.io/managed-by", "Helm")

# Values that the API server assigned to the object, by kind. (A headless Service sets clusterIP
# itself.)
_ALLOCATED: Mapping[str, tuple[tuple[str | int, ...], ...]] = {
    # the old name of serviceAccountName, which is also set
    "DaemonSet": (("spec", "template", "spec", "serviceAccount"),),
    "Namespace": (("spec",), ("metadata", "labels", "kubernetes.io/metadata.name")),
    "Service": tuple(
        ("spec", name)
        for name in ("clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort")
    ),
    "ServiceAccount": (("secrets",),),
}


class Adopted(msgspec.Struct, frozen=True):
    """The files of the repository by path, and notes for the user, one sentence each.

    `of_tools`: another tool applied some of the DaemonSets.
    """

    files: Mapping[PurePosixPath, str]
    notes: tuple[str, ...] = ()
    of_tools: bool = False


@dataclass(slots=True)
class _Found:
    """The objects so far, by key."""

    objects: dict[Key, Body] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    of_tools: bool = False

    def take(self, body: Body) -> None:
        self.objects[key_of(body)] = body


async def adopt(cluster: ClusterReader, namespaces: Collection[str]) -> Adopted:
    """The DaemonSets of these namespaces (none: all), with the objects that they need. Raises
    ClusterError, and Refused without a DaemonSet.
    """
    every = (await cluster.list(DAEMONSET)).items
    result = _Found()
    await _refuse_unknown(cluster, namespaces, {key_of(body).namespace for body in every})
    chosen = [body for body in every if key_of(body).namespace in namespaces or not namespaces]
    reasons = [_left_alone(body) for body in chosen]
    result.notes += filter(None, reasons)
    bodies = [body for body, why in zip(chosen, reasons, strict=True) if not why]
    if not bodies:
        raise errors.Refused("no DaemonSet to write: " + ("; ".join(result.notes) or "none found"))
    for body in bodies:
        result.take(body)
        _note(result, body)
    shared = {key_of(body): body for body in await _listed(cluster, _IN_CLUSTER, "")}
    for space in sorted({key_of(body).namespace for body in bodies}):
        near = {key_of(body): body for body in await _listed(cluster, _IN_SPACE, space)}
        for body in bodies:
            if key_of(body).namespace == space:
                for companion in _companions(body, {**shared, **near}):
                    if not _is_given(companion):
                        result.take(companion)
    return Adopted(
        _files(result.objects),
        tuple(result.notes),
        result.of_tools,
    )


async def _refuse_unknown(
    cluster: ClusterReader, namespaces: Collection[str], known: Collection[str]
) -> None:
    """Raises NoMatch for a namespace that does not exist; `known` ones have a DaemonSet."""
    for name in sorted({*namespaces} - {*known}):
        try:
            await cluster.get(NAMESPACE, "", name)
        except errors.Forbidden:
            continue
        except errors.NotFound:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise errors.NoMatch(f"there is no namespace {name}{hint}") from None


def clean(body: Body) -> dict[str, Any]:
    """The object without values of the API server: a manifest that is stored as the same object
    again.
    """
    metadata = {
        name: value for name, value in section(body.get("metadata")).items() if name not in _SERVERS
    }
    for group in ("labels", "annotations"):
        kept = {
            name: value
            for name, value in (metadata.pop(group, None) or {}).items()
            if not _is_mark(name) and (name, value) != _MANAGED_BY
        }
        if kept:
            metadata[group] = kept
    written = {
        **{name: value for name, value in body.items() if name not in ("metadata", "status")},
        "metadata": metadata,
    }
    for way in _ALLOCATED.get(str(body.get("kind")), ()):
        written = _without(written, way)
    if body.get("kind") == "Service":
        written = _as_asked(written)
    return _without_defaults(written) if body.get("kind") != "ConfigMap" else written


def _is_mark(name: str) -> bool:
    """Whether a label or annotation is from a tool, not from the manifest's author."""
    return name.partition("/")[0] in _MARKS or name in _NOTED


def _without_defaults(written: dict[str, Any]) -> dict[str, Any]:
    """The object without values that the API server would set itself."""
    stored = defaults.defaulted(written)
    for way in sorted(_ways(written, ()), key=len, reverse=True):
        smaller = _without(written, way)
        if defaults.defaulted(smaller) == stored:
            written = smaller
    return written


def _ways(value: Any, way: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    """The path of each key below the first level."""
    steps: Sequence[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        steps = list(value.items())
    elif isinstance(value, list):
        steps = list(enumerate(value))
    for step, inner in steps:
        if len(way) > 0 and isinstance(value, dict):
            yield (*way, step)
        yield from _ways(inner, (*way, step))


def _without(value: Any, way: tuple[str | int, ...]) -> Any:
    """The value without the one at the path; a mapping that becomes empty is kept."""
    first, *rest = way
    if isinstance(value, list):
        return [
            _without(item, tuple(rest)) if at == first else item for at, item in enumerate(value)
        ]
    if not rest:
        return {key: item for key, item in value.items() if key != first}
    return {
        key: _without(item, tuple(rest)) if key == first else item for key, item in value.items()
    }


def _left_alone(body: Body) -> str:
    """Why a DaemonSet is not written, else empty."""
    metadata, key = section(body.get("metadata")), key_of(body)
    if ours := object_owner.owner_of(body):
        repository = section(metadata.get("annotations")).get(names.REPOSITORY, ours)
        return f"{key} is in Git already: {repository} applies it"
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            return (
                f"{key} is owned by {owner.get('kind')} {owner.get('name')}, which would revert "
                "every change: change the owner instead"
            )
    return f"{key} is being deleted" if metadata.get("deletionTimestamp") else ""


def _note(result: _Found, body: Body) -> None:
    key, holder = key_of(body), object_owner.holder(body, "")
    if holder.hold is object_owner.Hold.FOREIGN:
        result.of_tools = True
        result.notes.append(
            f"{key} belongs to {holder.name}: pause that tool, then apply with --adopt"
        )
    secrets = {name for _, kind, name in references.of(pod(body)) if kind == "Secret"}
    if secrets:
        result.notes.append(
            f"{key} reads the Secrets {', '.join(sorted(secrets))}: they stay in the cluster and "
            "are not written"
        )


async def _listed(
    cluster: ClusterReader, kinds: Sequence[tuple[str, str]], namespace: str
) -> list[Body]:
    """All objects of these kinds; kinds that may not be listed are skipped."""

    async def one(kind: tuple[str, str]) -> Collection[Body]:
        try:
            return (
                await cluster.list(
                    builtin_resources.RESOURCES[kind], Selection(namespace=namespace)
                )
            ).items
        except errors.Forbidden:
            return ()

    return [body for some in await asyncio.gather(*map(one, kinds)) for body in some]


def _as_asked(service: dict[str, Any]) -> dict[str, Any]:
    """A Service without assigned addresses and ports."""
    spec = section(service.get("spec"))
    kept = {name: value for name, value in spec.items() if name != "clusterIP" or value == "None"}
    ports = [
        {name: value for name, value in port.items() if name != "nodePort"}
        for port in spec.get("ports") or ()
    ]
    return {**service, "spec": {**kept, **({"ports": ports} if ports else {})}}


def _companions(body: Body, near: Mapping[Key, Body]) -> Iterator[Body]:
    """The objects that the DaemonSet's pods refer to, the permissions of their account, and the
    Services that select them.
    """
    key, spec = key_of(body), pod(body)
    labels = section(section(template(body).get("metadata")).get("labels"))
    account = str(spec.get("serviceAccountName") or "default")
    keys = {Key("", kind, key.namespace, name) for _, kind, name in references.of(spec)}
    keys |= {
        Key("", "Namespace", "", key.namespace),
        Key("", "ServiceAccount", key.namespace, account),
    }
    keys.add(
        Key("scheduling.k8s.io", "PriorityClass", "", str(spec.get("priorityClassName") or ""))
    )
    for other, candidate in near.items():
        match other.kind:
            case "Service":
                selector = section(section(candidate.get("spec")).get("selector"))
                if selector and selector.items() <= labels.items():
                    keys.add(other)
            case "RoleBinding" | "ClusterRoleBinding" if _binds(candidate, key.namespace, account):
                role = section(candidate.get("roleRef"))
                kind = str(role.get("kind"))
                keys |= {
                    other,
                    Key(
                        _RBAC, kind, key.namespace if kind == "Role" else "", str(role.get("name"))
                    ),
                }
            case _:
                pass
    return (near[key] for key in sorted(keys) if key in near)


def _binds(binding: Body, namespace: str, account: str) -> bool:
    """Whether the account is its only subject: otherwise others need the binding too."""
    subjects = binding.get("subjects") or ()
    return bool(subjects) and all(
        (subject.get("kind"), subject.get("namespace"), subject.get("name"))
        == ("ServiceAccount", namespace, account)
        for subject in subjects
    )


def _is_given(body: Body) -> bool:
    """Whether every cluster has the object, or another object owns it."""
    metadata = section(body.get("metadata"))
    name = str(metadata.get("name"))
    return name in _GIVEN or name.startswith(_THERE) or bool(metadata.get("ownerReferences"))


def _files(objects: Mapping[Key, Body]) -> dict[PurePosixPath, str]:
    """A file for each DaemonSet, one for the other objects of each namespace, one for those of the
    cluster.
    """
    grouped: dict[PurePosixPath, list[Body]] = defaultdict(list)
    for key, body in sorted(objects.items(), key=lambda item: (writer.rank(item[0].kind), item[0])):
        file = f"{key.name}.yaml" if key.is_daemonset else "companions.yaml"
        grouped[
            PurePosixPath(key.namespace) / file if key.namespace else PurePosixPath("cluster.yaml")
        ].append(body)
    return {
        path: "---\n".join(writer.manifest(clean(body)) for body in bodies)
        for path, bodies in sorted(grouped.items())
    }
