"""Dry runs: an apply without a write, with the same conflicts and refusals."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping

from gitops_ds import errors
from gitops_ds.deployer.apply.applier import AT_ONCE, Applier, conflicts_of
from gitops_ds.model import names
from gitops_ds.model.cluster import Cluster
from gitops_ds.model.objects import Body, Key, Resource
from gitops_ds.model.sources.bundle import Manifest
from gitops_ds.plan import drift, object_changes, object_owner, planner
from gitops_ds.plan.options import DryRunResult, FieldConflict


async def dry_run(applier: Applier, manifests: Iterable[Manifest]) -> Mapping[Key, DryRunResult]:
    """The results of dry runs of these manifests, some at once."""
    requested = list(manifests)
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(manifest: Manifest) -> DryRunResult:
        async with turn:
            return await _dry_run_one(applier, manifest)

    results = await asyncio.gather(*map(one, requested))
    return {manifest.key: result for manifest, result in zip(requested, results, strict=True)}


async def _dry_run_one(applier: Applier, manifest: Manifest) -> DryRunResult:
    live = applier.live.objects.get(manifest.key)
    try:
        cluster = applier.acting(manifest.key, manifest.agent)
        if live is None:
            return await _create(cluster, applier, manifest)
        body = object_changes.probe(manifest, live, applier.context)
        return await _update(
            cluster,
            applier.resources[manifest.key],
            body,
            lambda conflicts: _may_force(applier, manifest, live, conflicts),
        )
    except (
        errors.Invalid,
        errors.BadRequest,
        errors.Forbidden,
        errors.NotPermitted,
        errors.ServerFault,
    ) as error:
        return DryRunResult(refused=str(error))


async def _create(cluster: Cluster, applier: Applier, manifest: Manifest) -> DryRunResult:
    """The dry run of a new object. NotFound is not a refusal: the same plan may create the
    namespace or the definition.
    """
    body = object_owner.stamped(manifest, object_owner.stamp_of(manifest, applier.context.stamp))
    with contextlib.suppress(errors.NotFound, errors.Conflict):
        result = await cluster.apply(
            applier.resources[manifest.key], body, manager=names.FIELD_MANAGER, dry_run=True
        )
        return DryRunResult(result.body)
    return DryRunResult()


async def _update(
    cluster: Cluster,
    resource: Resource,
    body: Body,
    may_force: Callable[[tuple[FieldConflict, ...]], bool],
) -> DryRunResult:
    """The dry run of an existing object, repeated with force if the conflicts permit it."""
    try:
        result = await cluster.apply(resource, body, manager=names.FIELD_MANAGER, dry_run=True)
    except errors.Conflict as error:
        conflicts = conflicts_of(error)
        if not may_force(conflicts):
            return DryRunResult(conflicts=conflicts)
        result = await cluster.apply(
            resource, body, manager=names.FIELD_MANAGER, force=True, dry_run=True
        )
    return DryRunResult(result.body)


def _may_force(
    applier: Applier, manifest: Manifest, live: Body, conflicts: tuple[FieldConflict, ...]
) -> bool:
    """Whether the dry run forces fields of other managers; for drift that is only reported, the
    result is the correction.
    """
    reported = drift.is_left(manifest, live, applier.context)
    return reported or planner.may_force(manifest, live, conflicts, applier.context)
