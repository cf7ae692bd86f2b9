"""Reads the live objects for a plan: by lists if possible, else one by one.

A command reads from the API server each time; the service reads the same from its `WatchCache`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Set

import msgspec

from gitops_ds.core import errors, names
from gitops_ds.core.cluster import BRIEF, ClusterReader, Selection
from gitops_ds.core.live import Live, Node, Revision
from gitops_ds.core.objects import (
    CONTROLLER_REVISION,
    DAEMONSET,
    NAMESPACE,
    NODE,
    POD,
    Body,
    Key,
    Resource,
    digest_of,
    key_of,
)
from gitops_ds.core.rollouts.template_cause import TemplateCause
from gitops_ds.core.skip_reasons import Skipped, SkipReason
from gitops_ds.core.sources.bundle import Bundle, Manifest
from gitops_ds.core.sources.source_tree import CommitInfo
from gitops_ds.core.values import replace
from gitops_ds.deploy.plan import deletions
from gitops_ds.kube.apimachinery import builtin_resources, nodes, revisions
from gitops_ds.ownership import field_managers, object_owner
from gitops_ds.rollouts.state import target_revisions

AT_ONCE = 16


class LocatedBundle(msgspec.Struct, frozen=True):
    """A bundle with its namespaces, the resource of each object of it and of the inventory, and the
    refusals of objects without one. `commit` is the commit that it was rendered from, `causes` are
    the records of the commits that gave templates, as far as they were found.
    """

    bundle: Bundle
    resources: Mapping[Key, Resource]
    refusals: tuple[Skipped, ...] = ()
    commit: CommitInfo | None = None
    causes: Mapping[Key, TemplateCause] = msgspec.field(default_factory=dict)


async def locate(
    cluster: ClusterReader,
    bundle: Bundle,
    inventory: Iterable[Key],
    commit: CommitInfo | None = None,
) -> LocatedBundle:
    """Resolves the resources of a bundle and of the inventory. Raises ClusterError."""
    bundle = await with_namespaces(cluster, bundle)
    resources, refusals = await resources_of(cluster, bundle, inventory)
    return LocatedBundle(bundle, resources, tuple(refusals), commit)


async def resources_of(
    cluster: ClusterReader, bundle: Bundle, others: Iterable[Key] = ()
) -> tuple[Mapping[Key, Resource], list[Skipped]]:
    """The resource of each object, and a refusal for each kind that the cluster does not serve.

    Built-in kinds need no request; others are resolved by discovery, which is repeated while a kind
    is not served. A kind with a CustomResourceDefinition in the bundle is resolved by it.
    """
    resources: dict[Key, Resource] = {}
    refused: list[Skipped] = []
    by_kind = {**_defined(bundle), **builtin_resources.RESOURCES}
    others = tuple(others)
    by_kind |= await _served(
        cluster, {(key.group, key.kind) for key in (*bundle.manifests, *others)} - by_kind.keys()
    )
    for manifest in bundle.manifests.values():
        resource = by_kind.get((manifest.key.group, manifest.key.kind))
        if resource is None:
            what = f"{manifest.body['apiVersion']} {manifest.key.kind}"
            refused.append(
                Skipped(
                    SkipReason.UNKNOWN_KIND,
                    f"{manifest.key}: the cluster serves no {what}; is its definition installed?",
                    manifest.key,
                )
            )
        elif resource.namespaced and not manifest.key.namespace:
            refused.append(
                Skipped(
                    SkipReason.NO_NAMESPACE,
                    f"{manifest.key} needs a namespace: write metadata.namespace",
                    manifest.key,
                )
            )
        else:
            resources[manifest.key] = _in_version(resource, manifest)
    for key in others:
        if key not in resources:
            resource = by_kind.get((key.group, key.kind))
            if resource is not None:
                resources[key] = resource
    return resources, refused


async def _served(
    cluster: ClusterReader, kinds: Set[tuple[str, str]]
) -> Mapping[tuple[str, str], Resource]:
    """The served ones of these kinds; discovery is repeated, as a definition may be new."""
    if not kinds:
        return {}
    served = await cluster.resources()
    if not kinds <= served.keys():
        served = await cluster.resources(refresh=True)
    return {kind: served[kind] for kind in kinds & served.keys()}


async def with_namespaces(cluster: ClusterReader, bundle: Bundle) -> Bundle:
    """The bundle with the default namespace on objects whose scope only discovery shows; of two
    that are the same object then, the one with a namespace, and a refusal of the other.
    """
    namespace = bundle.cluster.namespace
    unsure = [manifest for manifest in bundle.manifests.values() if manifest.scope_unknown]
    if not unsure:
        return bundle
    kinds = {(manifest.key.group, manifest.key.kind) for manifest in unsure}
    defined = _defined(bundle)
    by_kind = {**await _served(cluster, kinds - defined.keys()), **defined}
    manifests, refusals = dict(bundle.manifests), list(bundle.refusals)
    for manifest in unsure:
        resource = by_kind.get((manifest.key.group, manifest.key.kind))
        if resource is not None and resource.namespaced:
            del manifests[manifest.key]
            key = replace(manifest.key, namespace=namespace)
            if (other := manifests.get(key)) is not None:
                refusals.append(_twice(manifest, other))
                continue
            body = {
                **manifest.body,
                "metadata": {**manifest.body["metadata"], "namespace": namespace},
            }
            manifests[key] = replace(
                manifest, key=key, body=body, digest=digest_of(body), scope_unknown=False
            )
    return replace(bundle, manifests=dict(sorted(manifests.items())), refusals=tuple(refusals))


def _twice(left: Manifest, used: Manifest) -> Skipped:
    """The refusal of an object whose key another one has with the default namespace."""
    message = (
        f"{used.key} is written twice: in {used.origin.base.file}, which is used, and without a "
        f"namespace in {left.origin.base.file}; keep one of the two"
    )
    return Skipped(SkipReason.NAMED_TWICE, message, used.key)


def _in_version(resource: Resource, manifest: Manifest) -> Resource:
    version = str(manifest.body["apiVersion"]).rpartition("/")[2]
    return Resource(resource.group, version, resource.kind, resource.plural, resource.namespaced)


def _defined(bundle: Bundle) -> dict[tuple[str, str], Resource]:
    defined: dict[tuple[str, str], Resource] = {}
    for key, manifest in bundle.manifests.items():
        if key.kind == "CustomResourceDefinition":
            defined |= defined_by(manifest.body)
    return defined


def defined_by(body: Body) -> dict[tuple[str, str], Resource]:
    """The kind of a CustomResourceDefinition, in its last version; empty without a version."""
    spec = body.get("spec") or {}
    kind_names = spec.get("names") or {}
    defined = {}
    for version in spec.get("versions") or ():
        names_and_scope = (
            str(kind_names.get("kind")),
            str(kind_names.get("plural")),
            spec.get("scope") == "Namespaced",
        )
        resource = Resource(str(spec.get("group")), str(version.get("name")), *names_and_scope)
        defined[resource.group, resource.kind] = resource
    return defined


async def read(cluster: ClusterReader, resources: Mapping[Key, Resource], owner: str) -> Live:
    """The wanted objects, all others with our label, the revisions of DaemonSets, and the nodes if
    they may be listed.
    """
    kinds = {resource for resource in resources.values() if resource.kind not in ("DaemonSet",)}
    ours = Selection(labels=f"{names.OWNER_LABEL}={owner}")
    (daemonsets, all_revisions, (node_list, unlisted)), rest = await asyncio.gather(
        asyncio.gather(cluster.list(DAEMONSET), cluster.list(CONTROLLER_REVISION), _nodes(cluster)),
        asyncio.gather(*(_listed(cluster, resource, ours) for resource in sorted(kinds))),
    )
    objects = {key_of(body): body for body in daemonsets.items}
    for items in (*rest, targets_of(all_revisions.items, owner)):
        objects |= {key_of(body): body for body in items}
    missing = {
        key: resource
        for key, resource in resources.items()
        if key not in objects and resource.kind != "DaemonSet"
    }
    objects |= await _existing(cluster, missing)
    relevant = {
        key: body
        for key, body in objects.items()
        if key in resources or object_owner.owner_of(body) == owner
    }
    live = assemble(relevant, all_revisions.items, map(nodes.node_of, node_list))
    return replace(live, nodes=None, unlisted=unlisted) if unlisted else live


async def _existing(cluster: ClusterReader, missing: Mapping[Key, Resource]) -> dict[Key, Body]:
    """The existing ones of objects outside of all lists. Namespaces come first: missing ones
    contain no objects.
    """
    spaces = {key: resource for key, resource in missing.items() if resource == NAMESPACE}
    existing = await single(cluster, spaces)
    absent = {key.name for key in spaces.keys() - existing.keys()}
    others = {
        key: resource
        for key, resource in missing.items()
        if key not in spaces and key.namespace not in absent
    }
    return existing | await single(cluster, others)


def attested(live: Live, counts: Callable[[Revision], Revision]) -> Live:
    """The objects with only the records of rollouts that count."""

    def each(known: Mapping[Key, tuple[Revision, ...]]) -> dict[Key, tuple[Revision, ...]]:
        return {key: tuple(map(counts, some)) for key, some in known.items()}

    return replace(live, revisions=each(live.revisions), targets=each(live.targets))


def targets_of(all_revisions: Iterable[Body], owner: str) -> list[Body]:
    """The target revisions that we applied, among all revisions."""
    return [body for body in all_revisions if object_owner.owner_of(body) == owner]


async def _nodes(cluster: ClusterReader) -> tuple[Collection[Body], str]:
    """The nodes, or the error of a Forbidden list, as with the ClusterRole view."""
    try:
        return (await cluster.list(NODE, BRIEF)).items, ""
    except errors.Forbidden as error:
        return (), error.server_message


async def _listed(cluster: ClusterReader, resource: Resource, which: Selection) -> Collection[Body]:
    try:
        return (await cluster.list(resource, which)).items
    except errors.NotFound:  # a kind whose definition is part of this apply
        return ()


async def single(cluster: ClusterReader, resources: Mapping[Key, Resource]) -> dict[Key, Body]:
    """The existing ones of these objects, one request each, some at once."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def get(key: Key, resource: Resource) -> Body | None:
        async with turn:
            try:
                return await cluster.get(resource, key.namespace, key.name)
            except errors.NotFound:
                return None

    bodies = await asyncio.gather(*(get(key, resource) for key, resource in resources.items()))
    return {key: body for key, body in zip(resources, bodies, strict=True) if body is not None}


def assemble(
    objects: Mapping[Key, Body], all_revisions: Iterable[Body], node_list: Iterable[Node]
) -> Live:
    """A `Live` from bodies and nodes: revisions with their DaemonSet, oldest first; nodes by
    name.
    """
    by_uid = {
        str(body["metadata"].get("uid")): key
        for key, body in objects.items()
        if key.kind == "DaemonSet" and key.group == "apps"
    }
    spaces = {key.namespace for key in by_uid.values()}
    grouped: dict[Key, list[Revision]] = defaultdict(list)
    targets: dict[Key, list[Revision]] = defaultdict(list)
    named: set[tuple[str, str]] = set()
    for body in all_revisions:
        if (space := str(body["metadata"].get("namespace") or "")) in spaces:
            named.add((space, str(body["metadata"]["name"])))
        references = body["metadata"].get("ownerReferences") or ()
        if by_uid.keys().isdisjoint(str(reference.get("uid")) for reference in references):
            continue  # of others, and most of a cluster are: their templates are not read
        revision = revisions.revision_of(body)
        if revision is None:
            continue
        owner, daemonset = revisions.owner_of(revision), target_revisions.daemonset_of(revision)
        if owner and owner.uid in by_uid:
            grouped[by_uid[owner.uid]].append(revision)
        # the DaemonSet controller copies labels and annotations of other writers
        if daemonset and daemonset.uid in by_uid and field_managers.is_applied(body):
            targets[by_uid[daemonset.uid]].append(revision)
    history = {
        key: tuple(sorted(some, key=lambda revision: (revision.number, revision.name)))
        for key, some in grouped.items()
    }
    sorted_nodes = sorted(node_list, key=lambda node: node.name)
    rollouts = {key: tuple(some) for key, some in targets.items()}
    return Live(
        dict(objects),
        history,
        tuple(sorted_nodes),
        targets=rollouts,
        revision_names=frozenset(named),
    )


async def with_config_maps_in_use(
    cluster: ClusterReader, live: Live, leaving: Collection[Key]
) -> Live:
    """Adds the names of ConfigMaps that pods use; lists pods only if a content-named ConfigMap is
    deleted.
    """
    spaces = {key.namespace for key in deletions.content_named(leaving, live)}
    if not spaces:
        return live
    lists = await asyncio.gather(
        *(cluster.list(POD, Selection(namespace=space)) for space in sorted(spaces))
    )
    named = {
        (str(pod["metadata"].get("namespace")), name)
        for listing in lists
        for pod in listing.items
        for name in deletions.config_maps_in(pod.get("spec") or {})
    }
    return replace(live, named_config_maps=frozenset(named))
