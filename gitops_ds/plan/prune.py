"""How objects that left Git are deleted: the policy of each, the limits, and ConfigMaps that are
collected by use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any

import msgspec

from gitops_ds.model import names
from gitops_ds.model.live import Live
from gitops_ds.model.objects import CONTROLLER_REVISION, Body, Key
from gitops_ds.plan import field_managers


class Policy(Enum):
    """What pruning does with an object.

    Delete it, then its dependents (cascade), or the dependents first (foreground); keep its pods
    (orphan); keep it (disabled).
    https://kubernetes.io/docs/concepts/architecture/garbage-collection/
    """

    CASCADE = "cascade"
    FOREGROUND = "foreground"
    ORPHAN = "orphan"
    DISABLED = "disabled"


class Limit(msgspec.Struct, frozen=True):
    """A maximum: a `number`, else a `share` of the total (0 to 1)."""

    share: float = 1.0
    number: int | None = None

    def of(self, total: int) -> float:
        """The absolute number for that total."""
        return self.share * total if self.number is None else self.number

    def __str__(self) -> str:
        """The text of the setting."""
        return f"{self.share * 100:g}%" if self.number is None else str(self.number)


class Guards(msgspec.Struct, frozen=True):
    """`prune` enables deletions. Without approval only a limited number of nodes may lose an agent:
    a `share` of all (0 to 1), or `nodes`; by deletions and updates together.

    `deletes` limits how many of our objects are deleted at once; None: half of them, or all without
    `empty`. With `empty`, a commit without objects deletes nothing. `policy` is the default for
    objects without one.
    """

    prune: bool = False
    share: float = 0.2
    nodes: int | None = None
    deletes: Limit | None = None
    empty: bool = True
    policy: Policy = Policy.CASCADE

    @property
    def deleted(self) -> Limit:
        """How many of our objects may be deleted at once."""
        return self.deletes or Limit(0.5 if self.empty else 1.0)

    @property
    def lost(self) -> Limit:
        """How many nodes may lose an agent."""
        return Limit(self.share, self.nodes)


def policy_of(
    live: Body, otherwise: Policy = Policy.CASCADE, *, live_annotations: bool = True
) -> Policy:
    """The policy in the object's annotation `gitops-ds.io/prune`, DISABLED for an unknown value;
    `otherwise` without one.

    Without `live_annotations` an annotation that was written in the cluster is ignored.
    """
    value = ((live.get("metadata") or {}).get("annotations") or {}).get(names.PRUNE)
    if value is None or not (live_annotations or field_managers.is_from_git(live, names.PRUNE)):
        return otherwise
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


def collectable(candidates: Iterable[Key], live: Live) -> frozenset[Key]:
    """The objects that are collected by use, regardless of `prune`: content-named ConfigMaps
    without a reference from a pod or a kept ControllerRevision, and target revisions without a
    DaemonSet.
    """
    by_use = collected_by_use(candidates, live)
    return _unused_config_maps(by_use, live) | _former_targets(by_use, live)


def _former_targets(candidates: Iterable[Key], live: Live) -> frozenset[Key]:
    named = {
        (key.namespace, (body["metadata"].get("annotations") or {}).get(names.TARGET))
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


def _unused_config_maps(candidates: Iterable[Key], live: Live) -> frozenset[Key]:
    maps = content_named(candidates, live)
    if not maps:
        return frozenset()
    templates = [
        (key.namespace, revision.template)
        for key, revisions in live.revisions.items()
        for revision in revisions
    ]
    templates += [
        (key.namespace, (body.get("spec") or {}).get("template") or {})
        for key, body in live.objects.items()
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
        if key.kind == CONTROLLER_REVISION.kind
        and names.ROLLOUT in ((live.objects[key].get("metadata") or {}).get("labels") or {})
    }


def content_named(candidates: Iterable[Key], live: Live) -> frozenset[Key]:
    """The candidates whose name ends in the hash of their content."""
    return frozenset(
        key for key in candidates if key.kind == "ConfigMap" and _content_named(live.objects[key])
    )


def _content_named(body: Body) -> bool:
    metadata = body.get("metadata") or {}
    return names.CONTENT_NAMED in (metadata.get("annotations") or {}) or names.CONTENT_NAMED in (
        metadata.get("labels") or {}
    )


def config_maps_in(pod_spec: Body) -> frozenset[str]:
    """The names of all ConfigMaps in a pod spec: volumes, projections, environment."""
    return frozenset(name for name in _names(pod_spec) if name)


def _names(pod_spec: Body) -> Iterator[str]:
    for volume in pod_spec.get("volumes") or ():
        yield _name(volume.get("configMap"))
        for source in (volume.get("projected") or {}).get("sources") or ():
            yield _name(source.get("configMap"))
    for group in ("containers", "initContainers", "ephemeralContainers"):
        for container in pod_spec.get(group) or ():
            for source in container.get("envFrom") or ():
                yield _name(source.get("configMapRef"))
            for variable in container.get("env") or ():
                yield _name((variable.get("valueFrom") or {}).get("configMapKeyRef"))


def _name(reference: Any) -> str:
    return str((reference or {}).get("name") or "")
