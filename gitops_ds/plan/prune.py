"""How objects that left Git are deleted: the policy of each, the limits, and ConfigMaps that are
collected by use.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

import msgspec

from gitops_ds.apimachinery import config_maps
from gitops_ds.model import names
from gitops_ds.model.live import Live
from gitops_ds.model.objects import CONTROLLER_REVISION, Body, Key
from gitops_ds.plan import ownership


class Policy(Enum):
    """What pruning does with an object.

    Delete it and then what it owns (cascade), or that first (foreground); leave its pods (orphan);
    leave it alone (disabled).
    https://kubernetes.io/docs/concepts/architecture/garbage-collection/
    """

    CASCADE = "cascade"
    FOREGROUND = "foreground"
    ORPHAN = "orphan"
    DISABLED = "disabled"


class Limit(msgspec.Struct, frozen=True):
    """At most so many: a `number`, else a `share` of all there are (0 to 1)."""

    share: float = 1.0
    number: int | None = None

    def of(self, total: int) -> float:
        """The absolute number for that total."""
        return self.share * total if self.number is None else self.number

    def __str__(self) -> str:
        """As people write it."""
        return f"{self.share * 100:g}%" if self.number is None else str(self.number)


class Guards(msgspec.Struct, frozen=True):
    """`prune` turns deleting on. Without approval only so many nodes may lose an agent: `share` of
    all (0 to 1), or `nodes`; by deletions and by updates together.

    `deletes` limits how many objects of all that we own are deleted at once, `empty` lets a commit
    that names nothing delete nothing; `policy` is for objects that don't say one.
    """

    prune: bool = False
    share: float = 0.2
    nodes: int | None = None
    deletes: Limit | None = None
    empty: bool = True
    policy: Policy = Policy.CASCADE

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
    if value is None or not (live_annotations or ownership.is_from_git(live, names.PRUNE)):
        return otherwise
    return Policy(value) if value in {policy.value for policy in Policy} else Policy.DISABLED


def is_ending(live: Body) -> bool:
    """Whether the object is being deleted already."""
    return bool((live.get("metadata") or {}).get("deletionTimestamp"))


def is_orphaning(live: Body) -> bool:
    """Whether the object is being deleted and its pods stay: no node is waited for.

    https://kubernetes.io/docs/concepts/architecture/garbage-collection/#orphaned-dependents
    """
    return is_ending(live) and "orphan" in ((live.get("metadata") or {}).get("finalizers") or ())


def collectable(candidates: Iterable[Key], live: Live) -> frozenset[Key]:
    """What is collected by use, regardless of `prune`: content-named ConfigMaps that no pod and no
    kept ControllerRevision names, and target revisions that no DaemonSet names.
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
        named |= {(namespace, name) for name in config_maps.names_in(template.get("spec") or {})}
    return frozenset(key for key in maps if (key.namespace, key.name) not in named)


def collected_by_use(candidates: Iterable[Key], live: Live) -> frozenset[Key]:
    """The candidates that only `collectable` may choose from."""
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
