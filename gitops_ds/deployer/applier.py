"""Carries out a plan: server-side applies in order, a few at once, then deletes. Each object's
outcome is its own.

A dry run asks the API server what would come out, with the same conflicts and refusals as the
write.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from gitops_ds import errors
from gitops_ds.apimachinery import builtin_resources
from gitops_ds.model import names
from gitops_ds.model.bundle import Manifest
from gitops_ds.model.change import Change, Operation
from gitops_ds.model.cluster import ApplyResult, Cluster, PatchType, Propagation
from gitops_ds.model.live import Live
from gitops_ds.model.objects import Body, Key, Resource
from gitops_ds.model.skip_reasons import SkipReason
from gitops_ds.model.skipped import Skipped
from gitops_ds.plan import (
    apply_order,
    drift,
    object_changes,
    ownership,
    planner,
    prune,
    refusals,
    tracking_labels,
)
from gitops_ds.plan.options import DryRunResult, FieldConflict, PlanContext

AT_ONCE = 16
DEFINITION_SECONDS, DEFINITION_PAUSE = 10.0, 0.2


@dataclass(frozen=True, slots=True)
class AppliedObject:
    """An object after its write (None: deleted), with the API server's warnings."""

    change: Change
    body: Body | None
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class ApplyOutcome:
    """What became of a plan's changes."""

    written: list[AppliedObject] = field(default_factory=list)
    refused: list[tuple[Change, Skipped]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Applier:
    """All that a write needs: the cluster, where each object lives, what is live, and on which
    terms.
    """

    cluster: Cluster
    resources: Mapping[Key, Resource]
    live: Live
    terms: PlanContext

    def acting(self, key: Key, agent: str) -> Cluster:
        """The cluster, with the identity that applies this object. Raises NotPermitted
        where no account is configured.
        """
        who = self.terms.impersonation
        if who is None:
            return self.cluster
        found = who.of(key, agent)
        if isinstance(found, Skipped):
            raise errors.NotPermitted(found.message)
        return self.cluster.acting_as(found)


async def dry_run(writer: Applier, manifests: Iterable[Manifest]) -> Mapping[Key, DryRunResult]:
    """The API server's answers to dry runs of these manifests, whose objects exist."""
    wanted = list(manifests)
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(manifest: Manifest) -> DryRunResult:
        async with turn:
            return await _ask(writer, manifest)

    answers = await asyncio.gather(*map(one, wanted))
    return {manifest.key: answer for manifest, answer in zip(wanted, answers, strict=True)}


async def _ask(writer: Applier, manifest: Manifest) -> DryRunResult:
    live = writer.live.objects.get(manifest.key)
    try:
        cluster = writer.acting(manifest.key, manifest.agent)
        if live is None:
            return await _ask_for_new(cluster, writer, manifest)
        body, resource = (
            object_changes.probe(manifest, live, writer.terms),
            writer.resources[manifest.key],
        )
        return await _ask_both_ways(
            cluster, resource, body, lambda conflicts: _may_take(writer, manifest, live, conflicts)
        )
    except (
        errors.Invalid,
        errors.BadRequest,
        errors.Forbidden,
        errors.NotPermitted,
        errors.ServerFault,
    ) as error:
        return DryRunResult(refused=str(error))


async def _ask_for_new(cluster: Cluster, writer: Applier, manifest: Manifest) -> DryRunResult:
    """Whether the object may be made; a namespace or definition that comes with the same plan is
    not there yet.
    """
    body = tracking_labels.stamped(manifest, tracking_labels.of(manifest, writer.terms.stamp))
    with contextlib.suppress(errors.NotFound, errors.Conflict):
        await cluster.apply(
            writer.resources[manifest.key], body, manager=names.FIELD_MANAGER, dry_run=True
        )
    return DryRunResult()


async def _ask_both_ways(
    cluster: Cluster,
    resource: Resource,
    body: Body,
    may_take: Callable[[tuple[FieldConflict, ...]], bool],
) -> DryRunResult:
    try:
        return DryRunResult(
            (await cluster.apply(resource, body, manager=names.FIELD_MANAGER, dry_run=True)).body
        )
    except errors.Conflict as error:
        if not may_take(conflicts := conflicts_of(error)):
            return DryRunResult(conflicts=conflicts)
    return DryRunResult(
        (
            await cluster.apply(
                resource, body, manager=names.FIELD_MANAGER, force=True, dry_run=True
            )
        ).body
    )


def _may_take(
    writer: Applier, manifest: Manifest, live: Body, conflicts: tuple[FieldConflict, ...]
) -> bool:
    """Whether fields of others are to be shown as won; drift that is only told is shown as what
    would be put back.
    """
    left = drift.is_left(manifest, live, writer.terms)
    return left or planner.may_force(manifest, live, conflicts, writer.terms)


def conflicts_of(error: errors.Conflict) -> tuple[FieldConflict, ...]:
    """The fields and managers that the API server names."""
    found = (cause for cause in error.causes if cause.get("reason") == "FieldManagerConflict")
    return tuple(
        FieldConflict(_manager(cause.get("message", "")), cause.get("field", "")) for cause in found
    )


def _manager(message: str) -> str:
    return message.partition('"')[2].partition('"')[0] or message


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What is waited for, with patience: agents that others need, objects that come to their end.

    Each says what is missing, or nothing.
    """

    agents: Callable[[Sequence[str]], Awaitable[str]]
    ends: Callable[[Sequence[Key]], Awaitable[str]]


async def apply_changes(
    writer: Applier,
    changes: Sequence[Change],
    waits: Dependencies,
    tell: Callable[[AppliedObject], None],
) -> ApplyOutcome:
    """Writes the changes in their order, those of one kind and wave together; deletes come last,
    and only after no failure.

    What a change needs and is missing leaves it for a later pass; it is asked once for the same
    agents. `tell` hears of every write at once.
    """
    outcome = ApplyOutcome()
    wave_of = apply_order.waves(change.manifest for change in changes if change.manifest)
    missing: dict[tuple[str, ...], str] = {(): ""}

    def group(change: Change) -> tuple[bool, int, int]:
        agent = change.manifest.agent if change.manifest else ""
        return (
            change.operation is Operation.DELETE,
            wave_of.get(agent, 0),
            apply_order.rank(change.key),
        )

    for (deletes, _, _), together in groupby(
        (c for c in changes if c.operation is not Operation.KEEP), key=group
    ):
        some = list(together)
        if deletes and outcome.refused:
            outcome.refused += [(change, _kept(change.key)) for change in some]
            continue
        if deletes and some[0].key.is_daemonset:
            await _in_stages(writer, some, outcome, (waits, tell))
            continue
        free = []
        for change in some:
            needed = tuple(sorted(change.manifest.depends_on)) if change.manifest else ()
            if needed not in missing:
                missing[needed] = await waits.agents(needed)
            if missing[needed]:
                outcome.refused.append(
                    (
                        change,
                        Skipped(
                            SkipReason.WAITS, f"{change.key} waits: {missing[needed]}", change.key
                        ),
                    )
                )
            else:
                free.append(change)
        await _together(writer, free, outcome, tell)
    return outcome


async def _in_stages(
    writer: Applier,
    changes: Sequence[Change],
    outcome: ApplyOutcome,
    heard: tuple[Dependencies, Callable[[AppliedObject], None]],
) -> None:
    """Deletes DaemonSets so that at most as many nodes as the guard allows lose pods at once, or
    one DaemonSet's.

    Those of a stage are deleted in the foreground: they are there until their pods are gone, also
    for the next pass, and for one of another process.
    """
    waits, tell = heard
    allowed = writer.terms.guards.lost.of(len(writer.live.nodes or ()))
    live = writer.live.objects
    ending = [
        key
        for key, body in sorted(live.items())
        if key.is_daemonset and prune.is_ending(body) and not prune.is_orphaning(body)
    ]
    left = list(changes)
    while left:
        if missing := await waits.ends(ending):
            outcome.refused += [
                (
                    change,
                    Skipped(
                        SkipReason.WAITS, f"{change.key} is deleted later: {missing}", change.key
                    ),
                )
                for change in left
            ]
            return
        stage, nodes = left[:1], {*left[0].nodes.lost}
        while len(stage) < len(left) and len(nodes | {*left[len(stage)].nodes.lost}) <= allowed:
            nodes |= {*left[len(stage)].nodes.lost}
            stage.append(left[len(stage)])
        left = left[len(stage) :]
        await _together(writer, stage, outcome, tell, visibly=bool(left))
        ending = [change.key for change in stage if change.nodes.lost]


def _kept(key: Key) -> Skipped:
    """What left Git may be replaced by what was not applied."""
    return Skipped(SkipReason.WAITS, f"{key} is not deleted before everything else is applied", key)


async def _together(
    writer: Applier,
    changes: Sequence[Change],
    outcome: ApplyOutcome,
    tell: Callable[[AppliedObject], None],
    *,
    visibly: bool = False,
) -> None:
    """Writes or deletes some at once; `visibly`: what is deleted stays until its pods are gone."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(change: Change) -> None:
        async with turn:
            try:
                if change.manifest is None:
                    done = await _delete(writer, change, visibly=visibly)
                else:
                    done = await _write(writer, change, change.manifest)
            except errors.Conflict as error:
                outcome.refused.append((change, _lost(change.key, error)))
            except (errors.Unauthorized, errors.ClusterUnreachable):
                raise
            except (errors.ClusterError, errors.NotPermitted) as error:
                outcome.refused.append(
                    (
                        change,
                        Skipped(
                            SkipReason.REFUSED, f"{change.key}: {error}{_advice(error)}", change.key
                        ),
                    )
                )
            else:
                outcome.written.append(done)
                tell(done)

    # All come to their end before the first error is raised: nothing is written behind the caller's
    # back.
    ends = await asyncio.gather(*map(one, changes), return_exceptions=True)
    for error in ends:
        if error is not None:
            raise error


def _lost(key: Key, error: errors.Conflict) -> Skipped:
    """A conflict over fields, or an object that moved since it was looked at."""
    if conflicts := conflicts_of(error):
        return refusals.conflict(key, conflicts)
    return Skipped(
        SkipReason.CONFLICT,
        f"{key} was changed while it was being written ({error}): the next pass looks again",
        key,
    )


def _advice(error: errors.GitopsError) -> str:
    missing = isinstance(error, errors.NotFound) and str(error).startswith("namespaces ")
    return "; put a Namespace into the repository, or create it" if missing else ""


async def _write(writer: Applier, change: Change, manifest: Manifest) -> AppliedObject:
    body = tracking_labels.stamped(manifest, tracking_labels.of(manifest, writer.terms.stamp))
    resource, live = writer.resources[manifest.key], writer.live.objects.get(manifest.key)
    cluster = writer.acting(manifest.key, manifest.agent)
    if live is not None and ownership.needs_migration(live):
        await _migrate(cluster, resource, live)
    try:
        done = await _apply(cluster, resource, body)
    except errors.Conflict as error:
        if not planner.may_force(manifest, live, conflicts_of(error), writer.terms):
            raise
        done = await cluster.apply(resource, body, manager=names.FIELD_MANAGER, force=True)
    return AppliedObject(change, done.body, done.warnings)


async def _apply(cluster: Cluster, resource: Resource, body: Body) -> ApplyResult:
    """An apply; one of a custom kind is repeated for some seconds, until the definition written
    before it is in force.
    """
    custom = (resource.group, resource.kind) not in builtin_resources.RESOURCES
    tries = int(DEFINITION_SECONDS / DEFINITION_PAUSE) if custom else 0
    for _ in range(tries):
        try:
            return await cluster.apply(resource, body, manager=names.FIELD_MANAGER)
        except errors.NotFound as error:
            if str(error).startswith("namespaces "):
                raise
            await asyncio.sleep(DEFINITION_PAUSE)
    return await cluster.apply(resource, body, manager=names.FIELD_MANAGER)


async def _migrate(cluster: Cluster, resource: Resource, live: Body) -> None:
    """Hands us what `kubectl apply` owned, under the version that was looked at."""
    metadata = live["metadata"]
    patch = [
        {"op": "replace", "path": "/metadata/managedFields", "value": ownership.migrated(live)},
        {
            "op": "replace",
            "path": "/metadata/resourceVersion",
            "value": metadata["resourceVersion"],
        },
    ]
    await cluster.patch(
        resource,
        str(metadata.get("namespace") or ""),
        str(metadata["name"]),
        patch,
        type=PatchType.JSON,
    )


_PROPAGATION = {
    prune.Policy.ORPHAN: Propagation.ORPHAN,
    prune.Policy.FOREGROUND: Propagation.FOREGROUND,
}


async def _delete(writer: Applier, change: Change, *, visibly: bool) -> AppliedObject:
    key, live = change.key, writer.live.objects[change.key]
    policy = prune.policy_of(live, writer.terms.guards.policy, live_words=writer.terms.live_words)
    propagation = _PROPAGATION.get(policy, Propagation.BACKGROUND)
    if visibly and policy is prune.Policy.CASCADE:
        propagation = Propagation.FOREGROUND
    uid = str(live["metadata"].get("uid") or "")
    cluster = writer.acting(key, writer.terms.agents.get(key, ""))
    with contextlib.suppress(errors.NotFound):  # gone already
        await cluster.delete(
            writer.resources[key], key.namespace, key.name, uid=uid, propagation=propagation
        )
    return AppliedObject(change, None)
