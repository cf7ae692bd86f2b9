"""The effect of a change compared with its base: objects and fields, nodes, rollouts, and the drift
of clusters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gitops_ds.checks.engine import check as check_rules
from gitops_ds.checks.engine.contexts import ChangeSides as RuleSides
from gitops_ds.checks.engine.contexts import ClusterContext, ClusterStep
from gitops_ds.cli.check.model import BaseDrift, CheckInput, CheckResult, ClusterChange, together
from gitops_ds.core import duration
from gitops_ds.core.change import Change, FieldChange, Operation
from gitops_ds.core.finding import Finding
from gitops_ds.core.live import Live, NodeImpact
from gitops_ds.core.objects import Key, show_path
from gitops_ds.core.redaction import objects
from gitops_ds.core.sources.bundle import Bundle
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.core.values import replace
from gitops_ds.deploy.pipeline import change_forecast, prepare
from gitops_ds.deploy.pipeline.change_forecast import StagedForecasts
from gitops_ds.deploy.pipeline.prepare import Prepared
from gitops_ds.deploy.plan import base_diff as differences
from gitops_ds.deploy.plan import printers
from gitops_ds.kube.apimachinery import request_costs
from gitops_ds.ownership.object_owner import Stamp
from gitops_ds.ownership.options import PlanContext
from gitops_ds.rollouts.staging import staging, targets
from gitops_ds.source.render import bundle as rendering


def against(
    sides: CheckInput,
    base: SourceTree,
    heads: Mapping[str, Prepared],
    more: Sequence[Finding],
) -> CheckResult:
    """The check of the head with the changes from the base."""
    there = rendering.clusters(base)
    played, staged = change_forecast.RolloutForecasts(), StagedForecasts()
    steps, compared, changed, drifted = [], [], [], []
    for name, after in heads.items():
        live = sides.known(name)
        if there and name and name not in there:  # the change adds this cluster
            before = replace(after.bundle, manifests={})
        else:
            before = rendering.render(
                base, cluster=name if there else "", namespace=sides.namespace
            )
        drift = differences.drift(before, live)
        drifted.append(BaseDrift(name, drift))
        fields = {key: tuple(field.path for field in differing) for key, differing in drift.items()}
        rule_sides = RuleSides(
            ClusterContext(before.manifests, after.census), after.cluster_context, fields
        )
        steps.append(ClusterStep(after.bundle.cluster, rule_sides))
        compared.append(prepare.compared(rule_sides, after, sides.head))
        writes = _writes(before, after, live, rule_sides)
        nodes = after.census.nodes if after.census else ()
        bodies = {key: manifest.body for key, manifest in before.manifests.items()}
        previews = staged.over(writes, bodies, after.bundle, nodes)
        words = staging.words(after.bundle, live, PlanContext(Stamp("", "")))
        changes = targets.with_words(previews, words)
        looks = change_forecast.forecasts(rule_sides, changes, played, history=bool(live.revisions))
        changed.append(ClusterChange((name,), changes, looks, after.census))
    more = [
        *more,
        *check_rules.across(
            steps, {name: cluster.bundle for name, cluster in heads.items()}, sides.head
        ),
    ]
    has_objects = any(live.objects for live in sides.live.values())
    drifts = tuple(drift for drift in drifted if drift.objects) if has_objects else None
    return CheckResult(
        sides.head,
        tuple(compared),
        together(compared, more),
        _alike(changed),
        drift=drifts,
        unread=sides.unread,
    )


def lines(change: Change, group: ClusterChange) -> list[str]:
    """One change and its forecast as text."""
    look = group.forecasts.get(change.key, change_forecast.NOTHING)
    return [
        *printers.change_lines([change], group.census),
        *(f"      {line}" for line in change_forecast.lines(look, change, group.census)),
    ]


def time_of(group: ClusterChange) -> str:
    """The duration of its slowest rollout; empty without a simulation."""
    played = [look.rollout for look in group.forecasts.values() if look.rollout]
    if any(rollout.waiting for rollout in played):
        return "does not end"
    staged = [change.stages.seconds for change in group.changes if change.stages]
    seconds = [
        *(rollout.seconds for rollout in played),
        *(duration for duration in staged if duration is not None),
    ]
    return f"about {duration.words(max(seconds))}" if seconds else ""


def cost_of(group: ClusterChange) -> str:
    """The additional requests on every cluster of the group; empty if unknown."""
    return request_costs.summed([cost for look in group.forecasts.values() for cost in look.costs])


def as_json(checked: CheckResult) -> dict[str, Any]:
    """The changes, and the drift of clusters from the base, as parts of the report."""
    document: dict[str, Any] = {}
    if checked.changed is not None:
        document["changes"] = [
            {
                "clusters": list(group.clusters),
                "changes": [_as_json(change, group) for change in group.changes],
            }
            for group in checked.changed
        ]
    if checked.drift is not None:
        document["drift"] = [
            {
                "cluster": drift.cluster,
                "objects": [_drift_json(key, fields) for key, fields in drift.objects.items()],
            }
            for drift in checked.drift
        ]
    return document


def _as_json(change: Change, group: ClusterChange) -> dict[str, Any]:
    look = group.forecasts.get(change.key, change_forecast.NOTHING)
    return {
        **printers.change_json(change, group.census),
        **change_forecast.as_json(look, change, group.census),
    }


def _drift_json(key: Key, fields: Sequence[FieldChange]) -> dict[str, Any]:
    shown = [objects.field(key, field) for field in fields]
    rows = [
        {"path": show_path(field.path), "live": field.old, "base": field.new} for field in shown
    ]
    return {"object": printers.reference(key), "fields": rows}


def drift_lines(checked: CheckResult) -> list[tuple[str, list[str]]]:
    """The drift of clusters from the base: by cluster, one object per line, its fields below."""
    groups = []
    for drift in checked.drift or ():
        lines = []
        for key, fields in drift.objects.items():
            lines.append(f"  ≠ {key}")
            lines += [f"      {printers.field_line(objects.field(key, field))}" for field in fields]
        groups.append((drift.cluster, lines))
    return groups


def _writes(before: Bundle, after: Prepared, live: Live, sides: RuleSides) -> list[Change]:
    """The changes of one cluster without kept objects; without nodes if those of an object are
    unknown.
    """
    with_nodes = replace(live, nodes=after.census.nodes) if after.census else live
    unplaced = sides.before.unknown | sides.after.unknown
    return [
        replace(change, nodes=NodeImpact()) if change.key in unplaced else change
        for change in differences.changes(before, after.bundle, with_nodes)
        if change.operation is not Operation.KEEP
    ]


def _alike(changed: Iterable[ClusterChange]) -> tuple[ClusterChange, ...]:
    """Clusters grouped by equal changes; clusters without changes are omitted."""
    groups: dict[str, ClusterChange] = {}
    for change in changed:
        if change.changes:
            text = "\n".join(line for single in change.changes for line in lines(single, change))
            group = groups.get(text)
            both = (*(group.clusters if group else ()), *change.clusters)
            groups[text] = replace(group or change, clusters=both)
    return tuple(groups.values())
