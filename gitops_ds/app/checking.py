"""The check of a repository, for all its clusters: what is wrong, and what a change does against its base."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gitops_ds.app import inventory, repositories
from gitops_ds.model.change import Change, Operation
from gitops_ds.model.finding import Finding
from gitops_ds.model.live import Live
from gitops_ds.model.snapshot import Snapshot
from gitops_ds.pipeline import prepare
from gitops_ds.pipeline.prepare import Prepared
from gitops_ds.plan import against, show
from gitops_ds.render import bundle as rendering


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to check: clusters (none: all), a namespace for objects that name none, the base of a change, what is known of nodes."""

    clusters: tuple[str, ...] = ()
    namespace: str = ""
    base: str | None = None
    inventory: str | None = None


@dataclass(frozen=True, slots=True)
class Changed:
    """What a change does to some clusters, alike in each."""

    clusters: tuple[str, ...]
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found, and with a base what changes; `prepared` holds a bundle for each cluster."""

    snapshot: Snapshot
    prepared: tuple[Prepared, ...]
    findings: tuple[Finding, ...]
    changed: tuple[Changed, ...] | None = None


async def check(repository: repositories.Named, at: str | None, wanted: Wanted) -> Checked:
    """Renders and checks every cluster, once for each side. Raises UsageError for a base or a cluster that is not there."""
    live = inventory.read(wanted.inventory) if wanted.inventory else Live()
    head = await repositories.snapshot(repository, at)
    names = wanted.clusters or rendering.clusters(head) or ("",)
    found = {name: prepare.prepare(head, cluster=name, namespace=wanted.namespace, nodes=live.nodes) for name in names}
    if wanted.base is None:
        return Checked(head, tuple(found.values()), _together(list(found.values())))
    base = await repositories.base_snapshot(repository, wanted.base, at)
    there = rendering.clusters(base)
    compared, changed = [], {}
    for name, after in found.items():
        if there and name and name not in there:  # the change brings this cluster
            before = replace(after, bundle=replace(after.bundle, manifests={}))
        else:
            before = prepare.prepare(base, cluster=name if there else "", namespace=wanted.namespace)
        compared.append(prepare.compared(before, after, head))
        changed[name] = against.changes(before.bundle, after.bundle, live)
    return Checked(head, tuple(compared), _together(compared), _alike(changed))


def changes_text(checked: Checked) -> str:
    """What changes, for a terminal; nothing where no base was asked for."""
    if checked.changed is None:
        return ""
    lines = [""]
    for group in checked.changed:
        where = f" in {', '.join(filter(None, group.clusters))}" if any(group.clusters) else ""
        lines += [f"Changes{where}:", *show.change_lines(group.changes), ""]
    return "\n".join(lines if checked.changed else ["", "No object changes.", ""])


def changes_json(checked: Checked) -> dict[str, Any]:
    """What changes, as a part of the report; nothing where no base was asked for."""
    if checked.changed is None:
        return {}
    told = [{"clusters": list(group.clusters), "changes": list(map(show.change_json, group.changes))} for group in checked.changed]
    return {"changes": told}


def _together(prepared: Sequence[Prepared]) -> tuple[Finding, ...]:
    """The findings of all clusters, each once: what is wrong with a file itself is the same for all of them."""
    several = len(prepared) > 1
    every = (finding if finding.object and several else finding.on_cluster("") for one in prepared for finding in one.findings)
    return tuple(dict.fromkeys(every))


def _alike(changed: Mapping[str, tuple[Change, ...]]) -> tuple[Changed, ...]:
    """Clusters with the same change are told together; those without any are left out."""
    groups: dict[str, tuple[list[str], tuple[Change, ...]]] = {}
    for name, changes in changed.items():
        writes = tuple(change for change in changes if change.operation is not Operation.KEEP)
        if writes:
            groups.setdefault("\n".join(show.change_lines(writes)), ([], writes))[0].append(name)
    return tuple(Changed(tuple(names), writes) for names, writes in groups.values())
