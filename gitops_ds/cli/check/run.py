"""The check of a repository for all its clusters. `base_changes` compares it with a base.

Modules that only some checks need are imported on demand: half of the time of a small check is the
start of the program.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gitops_ds.checks.engine import check as check_rules
from gitops_ds.checks.engine.repository_rules import SAME_TWICE
from gitops_ds.cli.check.model import CheckInput, CheckOptions, CheckResult, together
from gitops_ds.core.errors import UsageError
from gitops_ds.core.live import Live
from gitops_ds.core.plain_text import counted
from gitops_ds.core.rollouts.cluster_report import ClusterOrder
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.core.values import replace
from gitops_ds.deploy.pipeline import open_repository, prepare
from gitops_ds.deploy.pipeline.prepare import Prepared
from gitops_ds.kube.apimachinery import node_pools
from gitops_ds.rollouts.staging import cluster_waves
from gitops_ds.source.render import bundle as rendering
from gitops_ds.source.render import charts


async def sides(
    repository: open_repository.RepositoryRef,
    at: str | None,
    options: CheckOptions,
    standing: SourceTree | None = None,
) -> CheckInput:
    """Reads the input of a check; `standing` is the work tree, if already read."""
    read = (
        open_repository.expanded(standing, repository.allowed)
        if standing
        else open_repository.snapshot(repository, at)
    )
    head = replace(await read, cached=options.cached)
    live = _snapshots(options.snapshots, head)
    base = None
    if options.base is not None:
        base = replace(
            await open_repository.base_snapshot(repository, options.base, at, options.base_from),
            cached=options.cached,
        )
    again = None
    if charts.may_vary(head):
        await asyncio.sleep(1 - time.time() % 1)  # a template may print the time in seconds
        again = await open_repository.rendered_again(head, repository.allowed)
    if options.live is None:
        return CheckInput(head, base, live, again)
    from gitops_ds.cli.snapshot import cluster_snapshot

    # the base selects the clusters to read, not a change that was not reviewed
    trusted = base or head
    names = [
        name
        for name in options.clusters or rendering.clusters(trusted) or ("",)
        if name not in live
    ]
    if options.live.context and len(names) > 1:
        raise UsageError(
            f"--context names one cluster, and {len(names)} are checked: choose it with --cluster"
        )
    connection = options.live.naming(*(options.clusters if base is None else names))
    seen, unread = await cluster_snapshot.clusters(
        connection, {name: rendering.facts(trusted, name) for name in names}
    )
    if unread and options.require_live:
        raise next(iter(unread.values()))
    return CheckInput(
        head,
        base,
        {**live, **seen},
        again,
        tuple(f"{name or 'the cluster'}: {error}" for name, error in unread.items()),
    )


def _snapshots(files: Sequence[str], head: SourceTree) -> Mapping[str, Live]:
    if not files:
        return {}
    from gitops_ds.cli.snapshot import cluster_snapshot

    return cluster_snapshot.read_each(files, rendering.clusters(head))


def of(sides: CheckInput, options: CheckOptions) -> CheckResult:
    """The check of the input. Raises UsageError for a missing cluster."""
    head = sides.head
    every = rendering.clusters(head)
    names = options.clusters or every or ("",)
    by_cluster = {
        name: prepare.prepare(
            head,
            cluster=name,
            namespace=options.namespace,
            live=sides.known(name),
            files=name == names[0],
        )
        for name in names
    }
    bundles = {name: one.bundle for name, one in by_cluster.items()}
    more = list(check_rules.repository(bundles, head)) if set(names) >= set(every) else []
    if sides.again is not None:
        for name, bundle in bundles.items():
            if bundle.rules.get(SAME_TWICE.id, SAME_TWICE.on):
                again = rendering.render(sides.again, cluster=name, namespace=options.namespace)
                more += check_rules.differing(bundle, again, head)
    if sides.base is None:
        return CheckResult(
            head,
            tuple(by_cluster.values()),
            together(list(by_cluster.values()), more),
            unread=sides.unread,
        )
    from gitops_ds.cli.check import base_changes

    return base_changes.against(sides, sides.base, options, by_cluster, more)


def require_content(where: str, snapshot: SourceTree, prepared: Iterable[Prepared]) -> None:
    """Raises UsageError for a directory without content for a cluster: a job in a wrong directory
    would always succeed.
    """
    if not any(one.bundle.manifests or one.findings for one in prepared) and not rendering.is_ours(
        snapshot
    ):
        advice = "name the directory of the repository (an argument, -C or --path)"
        raise UsageError(f"{where} has no Kubernetes object and no file of gitops-ds: {advice}")


def document(checked: CheckResult) -> dict[str, Any]:
    """The known nodes, the changes, and the drift of clusters from the base, as parts of the
    report.
    """
    document: dict[str, Any] = {"nodes": _nodes_json(checked), **_waves_json(checked)}
    if checked.changed is None and checked.drift is None:
        return document
    from gitops_ds.cli.check import base_changes

    return {**document, **base_changes.as_json(checked)}


def notes(checked: CheckResult) -> list[str]:
    """The nodes of the rules over nodes, one sentence for each source."""
    notes = []
    seen = [one for one in checked.prepared if one.census and not one.census.declared]
    declared = [one for one in checked.prepared if one.census and one.census.declared]
    unknown = [one for one in checked.prepared if one.census is None]
    if seen:
        notes.append(f"{_nodes_in(seen)} from the cluster or its snapshot")
    if declared:
        notes.append(
            f"{_nodes_in(declared)} from the pools declared in the cluster's file, "
            "not from the cluster"
        )
    unplaced = sorted({key.name for one in declared for key in one.fleet.unknown})
    if unplaced:
        notes.append(
            f"{node_pools.listed(unplaced)}: no pool declares the labels of their selectors, so "
            "their nodes are unknown"
        )
    if unknown:
        silent = sorted(
            {name for one in unknown for name in node_pools.silent(one.bundle.cluster.pools)}
        )
        why = (
            f"pool{'s' if len(silent) > 1 else ''} {', '.join(silent)} without `nodes:`"
            if silent
            else "no cluster snapshot, no pools"
        )
        where = f" of {node_pools.listed(named)}" if (named := _names(unknown)) else ""
        notes.append(f"no nodes{where} are known ({why}): rules over nodes were skipped")
    if order := cluster_waves.summary(_orders(checked)):
        notes.append(order)
    return [*notes, *checked.unread]


def _orders(checked: CheckResult) -> dict[str, ClusterOrder]:
    return {one.bundle.cluster.name: one.bundle.cluster.order for one in checked.prepared}


def _waves_json(checked: CheckResult) -> dict[str, Any]:
    """The order of the clusters; empty without one."""
    orders = {name: one for name, one in _orders(checked).items() if one.exists}
    return (
        {"waves": {name: cluster_waves.as_json(one) for name, one in orders.items()}}
        if (orders)
        else {}
    )


def _nodes_in(some: Sequence[Prepared]) -> str:
    where = f" of {node_pools.listed(named)}" if (named := _names(some)) else ""
    return f"{counted(sum(len(one.census.nodes) for one in some if one.census), 'node')}{where},"


def _names(some: Sequence[Prepared]) -> list[str]:
    return [one.bundle.cluster.name for one in some if one.bundle.cluster.name]


def _nodes_json(checked: CheckResult) -> list[dict[str, Any]]:
    return [
        {
            "cluster": one.bundle.cluster.name,
            "source": "none"
            if one.census is None
            else "pools"
            if one.census.declared
            else "inventory",
            "count": len(one.census.nodes) if one.census else 0,
            "pools": node_pools.by_pool((node.name for node in one.census.nodes), one.census)
            if one.census
            else {},
        }
        for one in checked.prepared
    ]
