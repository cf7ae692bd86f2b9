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
from gitops_ds.cli.check.arguments import CheckArgs
from gitops_ds.cli.check.model import CheckInput, CheckResult, together
from gitops_ds.core.errors import UsageError
from gitops_ds.core.live import Live
from gitops_ds.core.plain_text import counted
from gitops_ds.core.rollouts.cluster_report import ClusterOrder
from gitops_ds.core.sources.source_tree import CachedResults, SourceTree
from gitops_ds.core.values import replace
from gitops_ds.deploy.pipeline import open_repository, prepare
from gitops_ds.deploy.pipeline.prepare import Prepared
from gitops_ds.kube.apimachinery import node_pools
from gitops_ds.rollouts.waves import wave_order
from gitops_ds.source.render import bundle as rendering
from gitops_ds.source.render import charts


async def sides(
    args: CheckArgs,
    repository: open_repository.RepositoryRef,
    standing: SourceTree | None,
    cached: CachedResults,
) -> CheckInput:
    """Reads the input of a check; `standing` is the work tree, if already read, `cached` are the
    results of earlier runs.
    """
    at = args.revision
    read = (
        open_repository.expanded(standing, repository.allowed)
        if standing
        else open_repository.snapshot(repository, at)
    )
    head, base = replace(await read, cached=cached), None
    live = _snapshots(args.snapshot, head)
    if args.base is not None:
        named = open_repository.base_snapshot(repository, args.base, at, args.base_from or "")
        base = replace(await named, cached=cached)
    again = None
    if charts.may_vary(head):
        await asyncio.sleep(1 - time.time() % 1)  # a template may print the time in seconds
        again = await open_repository.rendered_again(head, repository.allowed)
    sides = CheckInput(head, base, live, again, clusters=args.clusters, namespace=args.namespace)
    return await _with_live(args, sides) if args.live or args.require_live else sides


async def _with_live(args: CheckArgs, sides: CheckInput) -> CheckInput:
    """The input with the data of clusters without a snapshot."""
    from gitops_ds.cli.snapshot import cluster_snapshot

    # the base selects the clusters to read, not a change that was not reviewed
    trusted, connection = sides.base or sides.head, args.connection()
    every = args.clusters or rendering.clusters(trusted) or ("",)
    names = [name for name in every if name not in sides.live]
    if connection.context and len(names) > 1:
        raise UsageError(
            f"--context names one cluster, and {len(names)} are checked: choose it with --cluster"
        )
    connection = connection.naming(*(args.clusters if sides.base is None else names))
    seen, unread = await cluster_snapshot.clusters(
        connection, {name: rendering.facts(trusted, name) for name in names}
    )
    if unread and args.require_live:
        raise next(iter(unread.values()))
    return replace(
        sides,
        live={**sides.live, **seen},
        unread=tuple(f"{name or 'the cluster'}: {error}" for name, error in unread.items()),
    )


def _snapshots(files: Sequence[str], head: SourceTree) -> Mapping[str, Live]:
    if not files:
        return {}
    from gitops_ds.cli.snapshot import cluster_snapshot

    return cluster_snapshot.read_each(files, rendering.clusters(head))


def of(sides: CheckInput) -> CheckResult:
    """The check of the input. Raises UsageError for a missing cluster."""
    head = sides.head
    every = rendering.clusters(head)
    names = sides.clusters or every or ("",)
    by_cluster = {
        name: prepare.prepare(
            head,
            cluster=name,
            namespace=sides.namespace,
            live=sides.known(name),
            files=name == names[0],
        )
        for name in names
    }
    bundles = {name: cluster.bundle for name, cluster in by_cluster.items()}
    more = list(check_rules.repository(bundles, head)) if set(names) >= set(every) else []
    if sides.again is not None:
        for name, bundle in bundles.items():
            if bundle.rules.get(SAME_TWICE.id, SAME_TWICE.on):
                again = rendering.render(sides.again, cluster=name, namespace=sides.namespace)
                more += check_rules.differing(bundle, again, head)
    if sides.base is None:
        return CheckResult(
            head,
            tuple(by_cluster.values()),
            together(list(by_cluster.values()), more),
            unread=sides.unread,
        )
    from gitops_ds.cli.check import base_changes

    return base_changes.against(sides, sides.base, by_cluster, more)


def require_content(where: str, snapshot: SourceTree, prepared: Iterable[Prepared]) -> None:
    """Raises UsageError for a directory without content for a cluster: a job in a wrong directory
    would always succeed.
    """
    if not any(
        cluster.bundle.manifests or cluster.findings for cluster in prepared
    ) and not rendering.is_ours(snapshot):
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
    seen = [
        cluster for cluster in checked.prepared if cluster.census and not cluster.census.declared
    ]
    declared = [
        cluster for cluster in checked.prepared if cluster.census and cluster.census.declared
    ]
    unknown = [cluster for cluster in checked.prepared if cluster.census is None]
    if seen:
        notes.append(f"{_nodes_in(seen)} from the cluster or its snapshot")
    if declared:
        notes.append(
            f"{_nodes_in(declared)} from the pools declared in the cluster's file, "
            "not from the cluster"
        )
    unplaced = sorted({key.name for cluster in declared for key in cluster.cluster_context.unknown})
    if unplaced:
        notes.append(
            f"{node_pools.listed(unplaced)}: no pool declares the labels of their selectors, so "
            "their nodes are unknown"
        )
    if unknown:
        silent = sorted(
            {
                name
                for cluster in unknown
                for name in node_pools.silent(cluster.bundle.cluster.pools)
            }
        )
        why = (
            f"pool{'s' if len(silent) > 1 else ''} {', '.join(silent)} without `nodes:`"
            if silent
            else "no cluster snapshot, no pools"
        )
        where = f" of {node_pools.listed(named)}" if (named := _names(unknown)) else ""
        notes.append(f"no nodes{where} are known ({why}): rules over nodes were skipped")
    if order := wave_order.summary(_orders(checked)):
        notes.append(order)
    return [*notes, *checked.unread]


def _orders(checked: CheckResult) -> dict[str, ClusterOrder]:
    return {
        cluster.bundle.cluster.name: cluster.bundle.cluster.order for cluster in checked.prepared
    }


def _waves_json(checked: CheckResult) -> dict[str, Any]:
    """The order of the clusters; empty without one."""
    orders = {name: order for name, order in _orders(checked).items() if order.exists}
    return (
        {"waves": {name: wave_order.as_json(order) for name, order in orders.items()}}
        if (orders)
        else {}
    )


def _nodes_in(some: Sequence[Prepared]) -> str:
    where = f" of {node_pools.listed(named)}" if (named := _names(some)) else ""
    number = sum(len(cluster.census.nodes) for cluster in some if cluster.census)
    return f"{counted(number, 'node')}{where},"


def _names(some: Sequence[Prepared]) -> list[str]:
    return [cluster.bundle.cluster.name for cluster in some if cluster.bundle.cluster.name]


def _nodes_json(checked: CheckResult) -> list[dict[str, Any]]:
    return [
        {
            "cluster": cluster.bundle.cluster.name,
            "source": "none"
            if cluster.census is None
            else "pools"
            if cluster.census.declared
            else "inventory",
            "count": len(cluster.census.nodes) if cluster.census else 0,
            "pools": node_pools.by_pool(
                (node.name for node in cluster.census.nodes), cluster.census
            )
            if cluster.census
            else {},
        }
        for cluster in checked.prepared
    ]
