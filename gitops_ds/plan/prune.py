"""What may be deleted because Git no longer names it, and what guards against deleting too much."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from gitops_ds.kinds import config_maps
from gitops_ds.model import names
from gitops_ds.model.change import Refusal
from gitops_ds.model.live import Live
from gitops_ds.model.objects import Body, Key


class Policy(Enum):
    """What pruning does with an object: delete it, leave its pods (orphan), or leave it alone (disabled)."""

    DELETE = "delete"
    ORPHAN = "orphan"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class Guards:
    """`prune` turns deleting on. Without approval only so many nodes may lose an agent: `share` of all (0 to 1), or `nodes`."""

    prune: bool = False
    share: float = 0.2
    nodes: int | None = None


def policy_of(live: Body) -> Policy:
    """The object's own word, the annotation `gitops-ds.io/prune`; an unknown word protects."""
    said = ((live.get("metadata") or {}).get("annotations") or {}).get(names.PRUNE)
    if said is None:
        return Policy.DELETE
    return Policy.ORPHAN if said == "orphan" else Policy.DISABLED


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


def refusals(orphans: Mapping[Key, tuple[str, ...]], live: Live, guards: Guards, *, empty: bool) -> tuple[Refusal, ...]:
    """Why objects that left Git are kept. `orphans` maps each to the nodes that would lose an agent; `empty`: Git names nothing."""
    said: list[Refusal] = []
    protected = [key for key in orphans if policy_of(live.objects[key]) is Policy.DISABLED]
    said += [
        Refusal("prune-disabled", f"{key} left Git; its annotation {names.PRUNE}: disabled keeps it", key) for key in protected
    ]
    rest = [key for key in orphans if key not in protected]
    if not rest:
        return tuple(said)
    if not guards.prune:
        said += [Refusal("prune-off", f"{key} left Git and is kept: pruning is off (--prune)", key) for key in rest]
    elif empty:
        said.append(
            Refusal("empty-render", f"Git names no object at all: {len(rest)} would be deleted, none is. Is the path right?")
        )
    else:
        said += _share(orphans, rest, live, guards)
    return tuple(said)


def _share(orphans: Mapping[Key, tuple[str, ...]], rest: Iterable[Key], live: Live, guards: Guards) -> list[Refusal]:
    losing = {node for key in rest for node in orphans[key]}
    total = len(live.nodes or ())
    allowed = guards.share * total if guards.nodes is None else guards.nodes
    if not losing or len(losing) <= allowed:
        return []
    limit = f"{guards.share:.0%}" if guards.nodes is None else str(guards.nodes)
    text = f"{len(losing)} of {total} nodes would lose an agent, more than {limit}"
    return [Refusal("share-of-nodes", f"{text}: approve this plan by its hash (--approve)")]
