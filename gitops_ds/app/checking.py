"""The check of a repository, for all its clusters: what is wrong, and what a change does against its base."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gitops_ds.app import inventory, repositories
from gitops_ds.core import rehearsal
from gitops_ds.core.rehearsal import Rehearsal
from gitops_ds.kinds import defaults
from gitops_ds.model.change import Change, Operation
from gitops_ds.model.finding import Finding
from gitops_ds.model.live import Live
from gitops_ds.model.objects import Key
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
    rehearsals: Mapping[Key, Rehearsal] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found, and with a base what changes; `prepared` holds a bundle for each cluster.

    `suppressed` is what somebody answers for, each with the reason.
    """

    snapshot: Snapshot
    prepared: tuple[Prepared, ...]
    findings: tuple[Finding, ...]
    changed: tuple[Changed, ...] | None = None
    suppressed: tuple[tuple[Finding, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Sides:
    """What a check looks at: a snapshot, that of the base (None: no change is looked at), and what is known of a cluster."""

    head: Snapshot
    base: Snapshot | None
    live: Live


async def check(repository: repositories.Named, at: str | None, wanted: Wanted) -> Checked:
    """Renders and checks every cluster, once for each side. Raises UsageError for a base or a cluster that is not there."""
    return of(await sides(repository, at, wanted), wanted)


async def sides(repository: repositories.Named, at: str | None, wanted: Wanted) -> Sides:
    """Reads what a check looks at."""
    live = inventory.read(wanted.inventory) if wanted.inventory else Live()
    head = await repositories.snapshot(repository, at)
    base = await repositories.base_snapshot(repository, wanted.base, at) if wanted.base is not None else None
    return Sides(head, base, live)


def of(sides: Sides, wanted: Wanted) -> Checked:
    """The check of what was read. Raises UsageError for a cluster that is not there."""
    head, base, live = sides.head, sides.base, sides.live
    names = wanted.clusters or rendering.clusters(head) or ("",)
    found = {name: prepare.prepare(head, cluster=name, namespace=wanted.namespace, nodes=live.nodes) for name in names}
    if base is None:
        return Checked(head, tuple(found.values()), _together(list(found.values())))
    there = rendering.clusters(base)
    compared, changed, played = [], {}, _Rehearsals(live)
    for name, after in found.items():
        if there and name and name not in there:  # the change brings this cluster
            before = replace(after, bundle=replace(after.bundle, manifests={}))
        else:
            before = prepare.prepare(base, cluster=name if there else "", namespace=wanted.namespace)
        compared.append(prepare.compared(before, after, head))
        writes = [one for one in against.changes(before.bundle, after.bundle, live) if one.operation is not Operation.KEEP]
        rehearsals = {one.key: played.of(before, one) for one in writes if one.rollout and one.rollout.rolls and live.nodes}
        changed[name] = Changed((name,), tuple(writes), rehearsals)
    return Checked(head, tuple(compared), _together(compared), _alike(changed.values()))


class _Rehearsals:
    """Plays each rollout on the known nodes, equal ones once."""

    def __init__(self, live: Live) -> None:
        self._nodes = live.nodes or ()
        self._played: dict[tuple[str, str], Rehearsal] = {}

    def of(self, before: Prepared, change: Change) -> Rehearsal:
        old, new = before.bundle.manifests[change.key], change.manifest
        assert new is not None, "a rollout has an object"
        sides = (old.digest, new.digest)
        if sides not in self._played:
            bodies = defaults.defaulted(old.body), defaults.defaulted(new.body)
            self._played[sides] = rehearsal.rehearse(*bodies, self._nodes)
        return self._played[sides]


def changes_text(checked: Checked) -> str:
    """What changes, for a terminal; nothing where no base was asked for."""
    if checked.changed is None:
        return ""
    lines = [""]
    for group in checked.changed:
        where = f" in {', '.join(filter(None, group.clusters))}" if any(group.clusters) else ""
        lines.append(f"Changes{where}:")
        lines += [line for change in group.changes for line in change_lines(change, group)] + [""]
    return "\n".join(lines if checked.changed else ["", "No object changes.", ""])


def change_lines(change: Change, group: Changed) -> list[str]:
    """One change in words, with what its rollout was like when it was played."""
    played = group.rehearsals.get(change.key)
    return [*show.change_lines([change]), *([f"      {_in_words(played)}"] if played else [])]


def time_of(group: Changed) -> str:
    """How long the slowest of its rollouts takes; empty where none was played."""
    if any(played.waiting for played in group.rehearsals.values()):
        return "does not end"
    return f"about {_duration(max(played.seconds for played in group.rehearsals.values()))}" if group.rehearsals else ""


def changes_json(checked: Checked) -> dict[str, Any]:
    """What changes, as a part of the report; nothing where no base was asked for."""
    if checked.changed is None:
        return {}
    told = [
        {"clusters": list(group.clusters), "changes": [_as_json(one, group) for one in group.changes]} for group in checked.changed
    ]
    return {"changes": told}


def _as_json(change: Change, group: Changed) -> dict[str, Any]:
    told = show.change_json(change)
    if (played := group.rehearsals.get(change.key)) is not None:
        told["rehearsal"] = {
            "seconds": round(played.seconds),
            "steps": played.steps,
            "atOnce": played.at_once,
            "waiting": list(played.waiting),
        }
    return told


def _in_words(played: Rehearsal) -> str:
    pace = rehearsal.USUAL
    assumed = f"if a pod takes {pace.start:.0f} s to start and {pace.stop:.0f} s to stop"
    if played.waiting:
        more = f" and {len(played.waiting) - 1} more" if len(played.waiting) > 1 else ""
        return f"does not end: {played.waiting[0]}{more} would wait for a new pod for ever"
    steps = f"{played.steps} step{'s' if played.steps != 1 else ''}"
    without = f"at most {played.at_once} node{'s' if played.at_once != 1 else ''} at once without it"
    return f"takes about {_duration(played.seconds)} in {steps}, {without}, {assumed}"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _together(prepared: Sequence[Prepared]) -> tuple[Finding, ...]:
    """The findings of all clusters, each once: what is wrong with a file itself is the same for all of them."""
    several = len(prepared) > 1
    every = (finding if finding.object and several else finding.on_cluster("") for one in prepared for finding in one.findings)
    return tuple(dict.fromkeys(every))


def _alike(changed: Iterable[Changed]) -> tuple[Changed, ...]:
    """Clusters with the same change are told together; those without any are left out."""
    groups: dict[str, Changed] = {}
    for one in changed:
        if one.changes:
            text = "\n".join(show.change_lines(one.changes))
            known = groups.get(text)
            groups[text] = replace(known, clusters=known.clusters + one.clusters) if known else one
    return tuple(groups.values())
