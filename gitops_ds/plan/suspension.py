"""Suspended agents: their objects are not written, other objects are. Pure.

They have the annotation `gitops-ds.io/suspend: "true"` on the live DaemonSet. If it came from Git,
a commit without it is applied. A commit that adds it is the last one that is applied to that agent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gitops_ds.model import names
from gitops_ds.model.change import Change, Operation
from gitops_ds.model.objects import Body, Key
from gitops_ds.model.skip_reasons import Skipped, SkipReason
from gitops_ds.plan import field_managers


def refusals(
    changes: Iterable[Change], live: Mapping[Key, Body], *, live_annotations: bool = True
) -> tuple[Skipped, ...]:
    """The skipped changes, each with its key: those of a suspended DaemonSet, and those of its
    agent.

    Without `live_annotations`, only annotations from a commit count.
    """
    changes = tuple(changes)
    agents: dict[str, Key] = {}
    keys: set[Key] = set()
    for change in changes:
        if change.key.kind == "DaemonSet" and _suspended(
            change, live.get(change.key), live_annotations=live_annotations
        ):
            keys.add(change.key)
            if change.manifest is not None and change.manifest.agent:
                agents[change.manifest.agent] = change.key
    refused = []
    for change in changes:
        by = (
            change.key
            if change.key in keys
            else agents.get(change.manifest.agent if change.manifest else "")
        )
        if by is not None and change.operation is not Operation.KEEP:
            word = f"{change.key} is unchanged: {'it' if by == change.key else by} is suspended"
            refused.append(
                Skipped(SkipReason.SUSPENDED, f"{word} (`gitops-ds resume {by.name}`)", change.key)
            )
    return tuple(refused)


def _suspended(change: Change, live: Body | None, *, live_annotations: bool) -> bool:
    if live is None or _annotation(live) != "true":
        return False
    if not live_annotations and not field_managers.is_from_git(live, names.SUSPEND):
        return False
    taken_back = change.manifest is not None and _annotation(change.manifest.body) != "true"
    return not (taken_back and field_managers.is_from_git(live, names.SUSPEND))


def _annotation(body: Body) -> str:
    return str(
        ((body.get("metadata") or {}).get("annotations") or {}).get(names.SUSPEND) or ""
    ).lower()
