"""Objects that left Git: how each is deleted, those that are collected by use, and the objects that
are deleted with them: the pods of a DaemonSet, the contents of a Namespace or a definition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from gitops_ds.core import names
from gitops_ds.core.live import Live
from gitops_ds.core.objects import CONTROLLER_REVISION, Body, Key, annotations_of, labels_of
from gitops_ds.core.skip_reasons import Skipped, SkipReason
from gitops_ds.core.sources.bundle import Bundle
from gitops_ds.deploy.plan import rollout_impact
from gitops_ds.kube.apimachinery import pod_references
from gitops_ds.ownership import field_managers, object_owner, permissions
from gitops_ds.ownership.options import ApplyOptions, PlanContext, Policy
from gitops_ds.rollouts.staging import targets
from gitops_ds.yaml import parser


def policy_of(live: Body, options: ApplyOptions) -> Policy:
    """The policy in the object's annotation `gitops-ds.io/prune`, DISABLED for an unknown value;
    that of the options without one.

    Without `live_annotations` an annotation that was written in the cluster is ignored.
    """
    value = annotations_of(live).get(names.PRUNE)
    counts = options.live_annotations or field_managers.is_from_git(live, names.PRUNE)
    if value is None or not counts:
        return options.guards.policy
    return Policy(value) if value in {policy.value for policy in Policy} else Policy.DISABLED


def is_ending(live: Body) -> bool:
    """Whether the object is being deleted already."""
    return bool((live.get("metadata") or {}).get("deletionTimestamp"))


def is_orphaning(live: Body) -> bool:
    """Whether the object is being deleted and its pods remain, so that the deletion affects no
    node.

    https://kubernetes.io/docs/concepts/architecture/garbage-collection/#orphaned-dependents
    """
    return is_ending(live) and "orphan" in ((live.get("metadata") or {}).get("finalizers") or ())


def collectable(candidates: Iterable[Key], live: Live, bundle: Bundle) -> frozenset[Key]:
    """The objects that are collected by use, regardless of `prune`: content-named ConfigMaps
    without a reference from a pod, a kept ControllerRevision, a target revision or a DaemonSet,
    also one that is to be written; and target revisions without a DaemonSet.
    """
    by_use = collected_by_use(candidates, live)
    return _unused_config_maps(by_use, live, bundle) | _former_targets(by_use, live)


def _former_targets(candidates: Iterable[Key], live: Live) -> frozenset[Key]:
    named = {
        (key.namespace, targets.name_of(body))
        for key, body in live.objects.items()
        if key.is_daemonset
    }
    return frozenset(
        key
        for key in candidates
        if key.kind == CONTROLLER_REVISION.kind
        and (key.namespace, key.name) not in named
        and not is_ending(live.objects[key])
    )


def _unused_config_maps(candidates: Iterable[Key], live: Live, bundle: Bundle) -> frozenset[Key]:
    maps = content_named(candidates, live)
    if not maps:
        return frozenset()
    templates = [
        (key.namespace, revision.template)
        for key, revisions in (*live.revisions.items(), *live.targets.items())
        for revision in revisions
    ]
    # A DaemonSet that is created during a rollout has its proven template, not that of Git.
    written = ((key, manifest.body) for key, manifest in bundle.manifests.items())
    templates += [
        (key.namespace, (body.get("spec") or {}).get("template") or {})
        for key, body in (*live.objects.items(), *written)
        if key.kind == "DaemonSet"
    ]
    named = set(live.named_config_maps)
    for namespace, template in templates:
        named |= {(namespace, name) for name in config_maps_in(template.get("spec") or {})}
    return frozenset(key for key in maps if (key.namespace, key.name) not in named)


def collected_by_use(candidates: Iterable[Key], live: Live) -> frozenset[Key]:
    """The candidates for `collectable` only."""
    keys = tuple(candidates)
    return content_named(keys, live) | {
        key
        for key in keys
        if key.kind == CONTROLLER_REVISION.kind and names.ROLLOUT in labels_of(live.objects[key])
    }


def content_named(candidates: Iterable[Key], live: Live) -> frozenset[Key]:
    """The candidates whose name ends in the hash of their content."""
    return frozenset(
        key for key in candidates if key.kind == "ConfigMap" and _content_named(live.objects[key])
    )


def _content_named(body: Body) -> bool:
    return names.CONTENT_NAMED in {**annotations_of(body), **labels_of(body)}


def config_maps_in(pod_spec: Body) -> frozenset[str]:
    """The names of all ConfigMaps in a pod spec: volumes, projections, environment."""
    return frozenset(
        reference.name
        for reference in pod_references.of("", pod_spec)
        if reference.kind == "ConfigMap"
    )


class Leaving(msgspec.Struct, frozen=True):
    """One of our objects that left Git: the deletion policy, the nodes that would lose an agent,
    and the objects that would be deleted with it.

    `unlisted` are kinds whose objects may not be listed: whether any would be deleted is unknown.
    """

    policy: Policy
    lost: tuple[str, ...] = ()
    takes: tuple[Key, ...] = ()
    unlisted: tuple[str, ...] = ()


def is_container(key: Key) -> bool:
    """Whether the deletion of the object deletes others that it does not own."""
    return (key.group, key.kind) in (
        ("", "Namespace"),
        ("apiextensions.k8s.io", "CustomResourceDefinition"),
    )


def to_list(leaving: Mapping[Key, Leaving], live: Live, context: PlanContext) -> tuple[Key, ...]:
    """The Namespaces and CustomResourceDefinitions whose contents decide whether they may be
    deleted.
    """
    if not context.options.guards.prune:
        return ()
    going = [
        key
        for key, one in leaving.items()
        if is_container(key) and one.policy is not Policy.DISABLED
    ]
    return tuple(key for key in going if not is_ending(live.objects[key]))


def of(
    bundle: Bundle, live: Live, context: PlanContext
) -> tuple[Mapping[Key, Leaving], list[Skipped]]:
    """Our objects that left Git, and why some of them must not be deleted."""
    leaving: dict[Key, Leaving] = {}
    refused: list[Skipped] = []
    for key, body in sorted(live.objects.items()):
        if key in bundle.manifests or key in context.options.other_owners.heirs:
            continue
        if not object_owner.may_delete(key, body, context.stamp.owner, context.inventory):
            refused += _left_alone(key, body, context)
        elif not context.options.other_owners.complete:
            refused.append(
                Skipped(
                    SkipReason.WAITS,
                    f"{key} is not deleted before all objects that may refer to it were read",
                    key,
                )
            )
        elif refusal := _out_of_reach(key, body, bundle, context):
            refused.append(refusal)
        else:
            leaving[key] = _leaving(key, body, live, context)
    return leaving, refused


def _left_alone(key: Key, body: Body, context: PlanContext) -> list[Skipped]:
    """The refusal for an object that we once applied and that is missing in the inventory; none for
    a copy of one of our objects.
    """
    if is_ending(body):
        return []
    is_copy = object_owner.mark_of(body) not in (None, object_owner.mark(context.stamp.owner, key))
    if (
        is_copy
        or not object_owner.labelled(body, context.stamp.owner)
        or not object_owner.applied_by_us(body)
    ):
        return []
    message = (
        f"{key} left Git and is kept: the inventory does not have it. Delete it "
        "manually, or add it to Git and remove it again"
    )
    return [Skipped(SkipReason.NOT_IN_INVENTORY, message, key)]


def _out_of_reach(key: Key, body: Body, bundle: Bundle, context: PlanContext) -> Skipped | None:
    reach = (
        context.options.deferred.get(key)
        or permissions.not_allowed(key, context.options.allowed, body)
        or permissions.not_deletable(
            key, context.state.agents.get(key, ""), context.options.impersonation
        )
    )
    return reach or quarantined(key, body, bundle) or _in_unread_file(key, bundle)


def _in_unread_file(key: Key, bundle: Bundle) -> Skipped | None:
    """The refusal for an object whose manifest is in a file that nothing reads: it was moved."""
    name = key.name.encode()
    file = next(
        (
            file
            for file, data in bundle.unread.items()
            if name in data and any(_is_manifest_of(key, value) for value in _values(file, data))
        ),
        None,
    )
    if file is None:
        return None
    message = (
        f"{key} is kept: its manifest is in {file}, which is not read. Add the file to "
        "`manifests:` of gitops-ds.yaml, or exclude it by `ignore:` to delete the object"
    )
    return Skipped(SkipReason.UNREAD, message, key)


def _values(file: str, data: bytes) -> Iterator[Any]:
    for document in parser.read(file, data).documents:
        items = document.value.get("items") if isinstance(document.value, Mapping) else None
        yield from items if isinstance(items, list) else (document.value,)


def _is_manifest_of(key: Key, value: Any) -> bool:
    if not isinstance(value, Mapping) or value.get("kind") != key.kind:
        return False
    metadata = value.get("metadata")
    return (
        isinstance(metadata, Mapping)
        and metadata.get("name") == key.name
        and metadata.get("namespace") in (None, "", key.namespace)
    )


def _leaving(key: Key, body: Body, live: Live, context: PlanContext) -> Leaving:
    policy = policy_of(body, context.options)
    if key.is_daemonset:
        # Orphaned pods remain on their nodes.
        # https://kubernetes.io/docs/tasks/administer-cluster/use-cascading-deletion/
        return Leaving(policy, () if policy is Policy.ORPHAN else _lost((body,), live))
    if not is_container(key):
        return Leaving(policy)
    listed = live.contents.get(key)
    inside = (
        listed.objects
        if listed
        else {other: one for other, one in live.objects.items() if is_in(other, key, body)}
    )
    # The deletion of the namespace deletes orphaned pods too.
    agents = [one for other, one in inside.items() if other.is_daemonset]
    return Leaving(
        policy, _lost(agents, live), tuple(sorted(inside)), listed.unlisted if listed else ()
    )


def is_in(key: Key, container: Key, body: Body) -> bool:
    """Whether the deletion of a Namespace or a definition deletes the object too."""
    if container.kind == "Namespace":
        return key.namespace == container.name
    spec = body.get("spec") or {}
    return (key.group, key.kind) == (spec.get("group"), (spec.get("names") or {}).get("kind"))


def _lost(daemonsets: Iterable[Body], live: Live) -> tuple[str, ...]:
    nodes = live.nodes or ()
    return tuple(
        sorted(
            {
                node
                for daemonset in daemonsets
                for node in rollout_impact.impact(daemonset, None, nodes, rolls=False).lost
            }
        )
    )


def in_use(
    leaving: Mapping[Key, Leaving], bundle: Bundle, live: Live, context: PlanContext
) -> dict[Key, tuple[Key, ...]]:
    """The Namespaces and definitions that contain objects in Git, of this or of another deployer of
    the service.
    """
    named = (*bundle.manifests, *context.options.other_owners.heirs)
    holding = {}
    for key in filter(is_container, leaving):
        if still := tuple(
            sorted({other for other in named if is_in(other, key, live.objects[key])})
        ):
            holding[key] = still
    return holding


def quarantined(key: Key, live: Body, bundle: Bundle, *, by: str = "") -> Skipped | None:
    """The refusal for an object of a source whose objects must be kept, unless that source still
    contains it.
    """
    source = source_of(str(annotations_of(live).get(names.PATH) or ""))
    if source not in bundle.kept or source == by:
        return None
    return Skipped(
        SkipReason.QUARANTINED,
        f"{key} is unchanged: its source {source} has an error",
        key,
    )


def source_of(file: str) -> str:
    """The cluster object with a template, by the name of the file:
    `configmap/NAMESPACE/NAME/KEY`.
    """
    return file.rpartition("/")[0]
