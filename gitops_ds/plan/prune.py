"""What may be deleted because Git no longer names it, and what guards against deleting too much."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from gitops_ds.kinds import config_maps
from gitops_ds.model import names
from gitops_ds.model.change import Refusal
from gitops_ds.model.live import Live
from gitops_ds.model.objects import Body, Key

if TYPE_CHECKING:
    from gitops_ds.plan.terms import Terms


class Policy(Enum):
    """What pruning does with an object.

    Delete it and then what it owns (cascade), or that first (foreground); leave its pods (orphan); leave it alone (disabled).
    https://kubernetes.io/docs/concepts/architecture/garbage-collection/
    """

    CASCADE = "cascade"
    FOREGROUND = "foreground"
    ORPHAN = "orphan"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class Limit:
    """At most so many: a `number`, else a `share` of all there are (0 to 1)."""

    share: float = 1.0
    number: int | None = None

    def of(self, total: int) -> float:
        """What that is of so many."""
        return self.share * total if self.number is None else self.number

    def __str__(self) -> str:
        """As people write it."""
        return f"{self.share * 100:g}%" if self.number is None else str(self.number)


@dataclass(frozen=True, slots=True)
class Guards:
    """`prune` turns deleting on. Without approval only so many nodes may lose an agent: `share` of all (0 to 1), or `nodes`.

    `deletes` limits how many objects of all that we own are deleted at once, `empty` lets a commit that names nothing delete
    nothing; `policy` is for objects that don't say one.
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


def policy_of(live: Body, otherwise: Policy = Policy.CASCADE) -> Policy:
    """The object's own word, the annotation `gitops-ds.io/prune`; an unknown word protects."""
    said = ((live.get("metadata") or {}).get("annotations") or {}).get(names.PRUNE)
    if said is None:
        return otherwise
    return Policy(said) if said in {policy.value for policy in Policy} else Policy.DISABLED


def agent_of(live: Body) -> str:
    """The agent that an object came from, by the path that an apply noted on it; empty where it noted none."""
    path = str(((live.get("metadata") or {}).get("annotations") or {}).get(names.PATH) or "").split("/")
    return path[1] if path[0] == "agents" and len(path) > 2 else ""


def is_ending(live: Body) -> bool:
    """Whether the object is being deleted already."""
    return bool((live.get("metadata") or {}).get("deletionTimestamp"))


def collectable(candidates: Iterable[Key], live: Live) -> frozenset[Key]:
    """Content-named ConfigMaps that no pod and no kept ControllerRevision names: they are collected, whatever `prune` says."""
    found = content_named(candidates, live)
    if not found:
        return frozenset()
    templates = [(key.namespace, revision.template) for key, known in live.revisions.items() for revision in known]
    templates += [
        (key.namespace, (body.get("spec") or {}).get("template") or {})
        for key, body in live.objects.items()
        if key.kind == "DaemonSet"
    ]
    named = set(live.named_config_maps)
    for namespace, template in templates:
        named |= {(namespace, name) for name in config_maps.names_in(template.get("spec") or {})}
    return frozenset(key for key in found if (key.namespace, key.name) not in named)


def content_named(candidates: Iterable[Key], live: Live) -> frozenset[Key]:
    """The candidates that only `collectable` may choose from."""
    return frozenset(key for key in candidates if key.kind == "ConfigMap" and _content_named(live.objects[key]))


def _content_named(body: Body) -> bool:
    metadata = body.get("metadata") or {}
    return names.CONTENT_NAMED in (metadata.get("annotations") or {}) or names.CONTENT_NAMED in (metadata.get("labels") or {})


def refusals(orphans: Mapping[Key, tuple[str, ...]], live: Live, terms: Terms, seen: tuple[str, bool]) -> tuple[Refusal, ...]:
    """Why objects that left Git are kept. `orphans` maps each to the nodes that would lose an agent.

    `seen` is the plan's hash, and whether Git names nothing at all. A plan that a person approved by its hash passes every guard
    but `prune: disabled` and pruning switched off; so does what was approved before.
    """
    guards, (hash, empty) = terms.guards, seen
    protected = [key for key in orphans if policy_of(live.objects[key], guards.policy) is Policy.DISABLED]
    said = [Refusal("prune-disabled", f"{key} left Git; its annotation {names.PRUNE}: disabled keeps it", key) for key in protected]
    rest = [key for key in orphans if key not in protected]
    if not guards.prune:
        return (*said, *(Refusal("prune-off", f"{key} left Git and is kept: pruning is off (--prune)", key) for key in rest))
    unasked = [key for key in rest if key not in terms.condemned and not is_ending(live.objects[key])]
    if not unasked or terms.approved == hash:
        return tuple(said)
    advice = f"approve this plan by its hash {hash} (--approve)"
    if empty and guards.empty:
        told = f"Git names no object at all: {len(rest)} would be deleted, none is. Is the path right? If so, {advice}"
        return (*said, Refusal("empty-render", told))
    ours = [body for body in live.objects.values() if _owner(body) == terms.stamp.owner]
    if guards.deletes is not None and len(unasked) > guards.deletes.of(len(ours)):
        told = f"{len(unasked)} of {len(ours)} objects would be deleted, more than {guards.deletes}: {advice}"
        said.append(Refusal("too-many-deletes", told))
    losing, total = {node for key in unasked for node in orphans[key]}, len(live.nodes or ())
    if len(losing) > guards.lost.of(total):
        told = f"{len(losing)} of {total} nodes would lose an agent, more than {guards.lost}: {advice}"
        said.append(Refusal("share-of-nodes", told))
    return tuple(said)


def _owner(body: Body) -> str:
    return str(((body.get("metadata") or {}).get("labels") or {}).get(names.OWNER_LABEL) or "")
