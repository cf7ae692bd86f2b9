"""Applies a plan: server-side applies in order, a few at once, then deletions. Each object has its
own outcome. A change waits for its dependencies: ready agents, and the end of deleted DaemonSets.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import msgspec

from gitops_ds.core import errors, names
from gitops_ds.core.change import Change, Operation
from gitops_ds.core.cluster import (
    ApplyResult,
    Cluster,
    ClusterReader,
    Identity,
    PatchType,
    Propagation,
)
from gitops_ds.core.live import Live
from gitops_ds.core.objects import DAEMONSET, Body, Key, Resource
from gitops_ds.core.skip_reasons import Skipped, SkipReason
from gitops_ds.core.sources.bundle import Bundle, Manifest
from gitops_ds.deploy.plan import added_fields, apply_order, deletions, object_changes, planner
from gitops_ds.deploy.target import KnownPods
from gitops_ds.kube.apimachinery import builtin_resources
from gitops_ds.ownership import object_owner, ownership, refused_writes
from gitops_ds.ownership.field_managers import Fields
from gitops_ds.ownership.options import FieldConflict, PlanContext, Policy
from gitops_ds.rollouts.state import daemonset_statements

AT_ONCE = 16
DEFINITION_SECONDS, DEFINITION_PAUSE = 10.0, 0.2
POLL_SECONDS = 1.0


class AppliedObject(msgspec.Struct, frozen=True):
    """An object after its write (None: deleted), with the API server's warnings. `created`: the
    write created it.
    """

    change: Change
    body: Body | None
    warnings: tuple[str, ...] = ()
    created: bool = False


Report = Callable[[AppliedObject], None]
Record = Callable[[Sequence[AppliedObject]], Awaitable[None]]


@dataclass(slots=True)
class ApplyOutcome:
    """The results of a plan's changes. The first `recorded` written objects are in the state."""

    written: list[AppliedObject] = field(default_factory=list)
    refused: list[tuple[Change, Skipped]] = field(default_factory=list)
    recorded: int = 0

    @property
    def unrecorded(self) -> list[AppliedObject]:
        """The written objects that are not in the state yet."""
        return self.written[self.recorded :]


class PlanInputs(msgspec.Struct, frozen=True):
    """The inputs of a plan: the cluster, the resource of each object, the live objects, and the
    context. `known_pods` returns the pods of a DaemonSet that need no list, None without them.
    """

    cluster: ClusterReader
    resources: Mapping[Key, Resource]
    live: Live
    context: PlanContext
    known_pods: KnownPods = lambda _: None

    def acting(self, key: Key, agent: str) -> ClusterReader:
        """The cluster, with the identity that applies this object. Raises NotPermitted if no
        account is configured.
        """
        identity = self.identity(key, agent)
        return self.cluster if identity is None else self.cluster.acting_as(identity)

    def identity(self, key: Key, agent: str) -> Identity | None:
        """The identity that applies this object; None: that of the connection. Raises NotPermitted
        if no account is configured.
        """
        who = self.context.options.impersonation
        identity = who.of(key, agent) if who is not None else None
        if isinstance(identity, Skipped):
            raise errors.NotPermitted(identity.message)
        return identity


class Applier(PlanInputs, frozen=True):
    """The inputs of an apply: those of a plan, with a cluster that may be written."""

    cluster: Cluster

    def acting(self, key: Key, agent: str) -> Cluster:
        """As that of a plan."""
        identity = self.identity(key, agent)
        return self.cluster if identity is None else self.cluster.acting_as(identity)


def conflicts_of(error: errors.Conflict) -> tuple[FieldConflict, ...]:
    """The fields in conflict, with their managers."""
    causes = (cause for cause in error.causes if cause.get("reason") == "FieldManagerConflict")
    return tuple(
        FieldConflict(_manager(cause.get("message", "")), cause.get("field", ""))
        for cause in causes
    )


def _manager(message: str) -> str:
    return message.partition('"')[2].partition('"')[0] or message


async def apply_changes(
    applier: Applier,
    changes: Sequence[Change],
    waits: Dependencies,
    report: Report,
    record: Record,
) -> ApplyOutcome:
    """Writes the changes in their order, those of one kind and wave together; deletions come last,
    and only if no change was refused. `report` is called for every write at once, `record` with the
    written objects before anything waits for them.
    """
    run = _ApplyRun(applier, waits, report, record)
    wave_of = apply_order.waves(change.manifest for change in changes if change.manifest)

    def group(change: Change) -> tuple[bool, int, int]:
        agent = change.manifest.agent if change.manifest else ""
        wave, rank = wave_of.get(agent, 0), apply_order.rank(change.key)
        return change.operation is Operation.DELETE, wave, rank

    writes = (change for change in changes if change.operation is not Operation.KEEP)
    for (deletes, _, _), together in groupby(writes, key=group):
        some = list(together)
        await run.record_written()
        if deletes and run.outcome.refused:
            run.outcome.refused += [(change, _kept(change.key)) for change in some]
        elif deletes and some[0].key.is_daemonset:
            await run.delete_in_stages(some)
        else:
            await run.write([change for change in some if await run.is_free(change)])
    return run.outcome


@dataclass(slots=True)
class _ApplyRun:
    """The application of one plan. `missing`: what the agents of each set of dependencies lack."""

    applier: Applier
    waits: Dependencies
    report: Report
    record: Record
    outcome: ApplyOutcome = field(default_factory=ApplyOutcome)
    missing: dict[tuple[str, ...], str] = field(default_factory=lambda: {(): ""})

    async def record_written(self) -> None:
        if new := self.outcome.unrecorded:
            self.outcome.recorded += len(new)
            await self.record(new)

    async def is_free(self, change: Change) -> bool:
        """Whether the dependencies of a change are ready; each set of dependencies is waited for
        once.
        """
        needed = tuple(sorted(change.manifest.depends_on)) if change.manifest else ()
        if needed not in self.missing:
            self.missing[needed] = await self.waits.agents(needed)
        if missing := self.missing[needed]:
            self._refuse(change, SkipReason.WAITS, f"{change.key} waits: {missing}")
        return not missing

    def _refuse(self, change: Change, reason: SkipReason, message: str) -> None:
        self.outcome.refused.append((change, Skipped(reason, message, change.key)))

    async def delete_in_stages(self, changes: Sequence[Change]) -> None:
        """Deletes DaemonSets in stages: each one removes pods from at most as many nodes as the
        guard allows, or deletes one DaemonSet.

        Deletions of a stage are in the foreground: the objects exist until their pods are gone,
        which the next reconciliation and other processes see as well.
        """
        allowed = self.applier.context.options.guards.lost.of(len(self.applier.live.nodes or ()))
        ending = [
            key
            for key, body in sorted(self.applier.live.objects.items())
            if key.is_daemonset and deletions.is_ending(body) and not deletions.is_orphaning(body)
        ]
        left = list(changes)
        while left:
            if missing := await self.waits.ends(ending):
                for change in left:
                    message = f"{change.key} is deleted later: {missing}"
                    self._refuse(change, SkipReason.WAITS, message)
                return
            stage, left = _next_stage(left, allowed)
            await self.write(stage, visibly=bool(left))
            ending = [change.key for change in stage if change.nodes.lost]

    async def write(self, changes: Sequence[Change], *, visibly: bool = False) -> None:
        """Writes or deletes some objects at once; `visibly`: deleted ones exist until their pods
        are gone.
        """
        turn = asyncio.Semaphore(AT_ONCE)

        async def one(change: Change) -> None:
            async with turn:
                await self._write_one(change, visibly=visibly)

        # The first error is raised after the end of every write: none continues after the return.
        results = await asyncio.gather(*map(one, changes), return_exceptions=True)
        for error in results:
            if error is not None:
                raise error

    async def _write_one(self, change: Change, *, visibly: bool) -> None:
        try:
            if change.manifest is None:
                done = await _delete(self.applier, change, visibly=visibly)
            else:
                done = await _write(self.applier, change, change.manifest)
        except errors.Conflict as error:
            self.outcome.refused.append((change, _lost(change.key, error)))
        except (errors.Unauthorized, errors.ClusterUnreachable):
            raise
        except (errors.ClusterError, errors.NotPermitted) as error:
            message = f"{change.key}: {error}{_advice(error)}"
            self._refuse(change, SkipReason.REFUSED, message)
        else:
            self.outcome.written.append(done)
            self.report(done)


def _next_stage(changes: list[Change], allowed: float) -> tuple[list[Change], list[Change]]:
    """The first changes that together remove pods from at most `allowed` nodes, at least one
    change; and the others.
    """
    count, nodes = 1, {*changes[0].nodes.lost}
    while count < len(changes) and len(nodes | {*changes[count].nodes.lost}) <= allowed:
        nodes |= {*changes[count].nodes.lost}
        count += 1
    return changes[:count], changes[count:]


def _kept(key: Key) -> Skipped:
    """A deletion waits for all other changes: they may replace the object."""
    return Skipped(SkipReason.WAITS, f"{key} is not deleted before everything else is applied", key)


def _lost(key: Key, error: errors.Conflict) -> Skipped:
    """The refusal of a conflict over fields, or of an object that changed since it was read."""
    if conflicts := conflicts_of(error):
        return refused_writes.conflict(key, conflicts)
    return Skipped(
        SkipReason.CONFLICT,
        f"{key} changed concurrently ({error}): the next reconciliation tries again",
        key,
    )


def _advice(error: errors.GitopsError) -> str:
    missing = isinstance(error, errors.NotFound) and str(error).startswith("namespaces ")
    return "; put a Namespace into the repository, or create it" if missing else ""


async def _write(applier: Applier, change: Change, manifest: Manifest) -> AppliedObject:
    body = object_owner.stamped(manifest, object_owner.stamp_of(manifest, applier.context.stamp))
    resource, live = applier.resources[manifest.key], applier.live.objects.get(manifest.key)
    cluster = applier.acting(manifest.key, manifest.agent)
    added = added_fields.of(manifest, live, applier.context) if live is not None else {}
    if live is not None and (added or ownership.needs_migration(live)):
        await _migrate(cluster, resource, live, added)
    try:
        done = await _apply(cluster, resource, body)
    except errors.Conflict as error:
        if not planner.may_force(manifest, live, conflicts_of(error), applier.context):
            raise
        done = await cluster.apply(resource, body, manager=names.FIELD_MANAGER, force=True)
    if not done.created and object_changes.lost_empty(done.body, body):
        done = await _apply(cluster, resource, body)
    return AppliedObject(change, done.body, done.warnings, done.created)


async def _apply(cluster: Cluster, resource: Resource, body: Body) -> ApplyResult:
    """An apply; one of a custom kind is repeated for some seconds, until the API server serves its
    definition.
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


async def _migrate(cluster: Cluster, resource: Resource, live: Body, added: Fields) -> None:
    """Transfers the fields of `kubectl apply`, and the added ones, to our manager, at the version
    that was read.
    """
    metadata = live["metadata"]
    patch = [
        {
            "op": "replace",
            "path": "/metadata/managedFields",
            "value": ownership.migrated(live, added),
        },
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
    Policy.ORPHAN: Propagation.ORPHAN,
    Policy.FOREGROUND: Propagation.FOREGROUND,
}


async def _delete(applier: Applier, change: Change, *, visibly: bool) -> AppliedObject:
    key, live = change.key, applier.live.objects[change.key]
    policy = deletions.policy_of(live, applier.context.options)
    propagation = _PROPAGATION.get(policy, Propagation.BACKGROUND)
    if visibly and policy is Policy.CASCADE:
        propagation = Propagation.FOREGROUND
    uid = str(live["metadata"].get("uid") or "")
    cluster = applier.acting(key, applier.context.state.agents.get(key, ""))
    with contextlib.suppress(errors.NotFound):  # gone already
        await cluster.delete(
            applier.resources[key], key.namespace, key.name, uid=uid, propagation=propagation
        )
    return AppliedObject(change, None)


class Dependencies(msgspec.Struct, frozen=True):
    """Waits, with a time limit, for agents to be ready and for DaemonSets to be gone.

    Each method returns the reasons of a failure, or an empty string.
    """

    agents: Callable[[Sequence[str]], Awaitable[str]]
    ends: Callable[[Sequence[Key]], Awaitable[str]]


def dependencies_of(cluster: ClusterReader, bundle: Bundle, patience: float) -> Dependencies:
    """The dependencies within a bundle; `patience` is the time limit in seconds."""

    async def agents(needed: Sequence[str]) -> str:
        keys = [
            key
            for key, manifest in bundle.manifests.items()
            if manifest.agent in needed and key.kind == "DaemonSet"
        ]
        return await _wait(patience, keys, lambda key: _not_ready(cluster, key))

    async def ends(keys: Sequence[Key]) -> str:
        return await _wait(patience, keys, lambda key: _not_gone(cluster, key))

    return Dependencies(agents, ends)


async def _wait(
    patience: float, keys: Sequence[Key], reason: Callable[[Key], Awaitable[str]]
) -> str:
    """The remaining reasons at the time limit; empty as soon as no key has one."""
    deadline = asyncio.get_running_loop().time() + patience
    while True:
        reasons = [text for key in keys if (text := await _retryable(reason, key))]
        if not reasons or asyncio.get_running_loop().time() >= deadline:
            return "; ".join(reasons)
        await asyncio.sleep(POLL_SECONDS)


async def _retryable(reason: Callable[[Key], Awaitable[str]], key: Key) -> str:
    """As `reason`; a retryable error is a reason to wait, as long as this replica leads."""
    try:
        return await reason(key)
    except errors.NotLeading:
        raise
    except errors.ClusterError as error:
        if not error.retryable:
            raise
        return f"{key}: {error}"


async def _not_gone(cluster: ClusterReader, key: Key) -> str:
    try:
        await cluster.get(DAEMONSET, key.namespace, key.name)
    except errors.NotFound:
        return ""
    return f"the pods of {key} are not gone yet"


async def _not_ready(cluster: ClusterReader, key: Key) -> str:
    try:
        body = await cluster.get(DAEMONSET, key.namespace, key.name)
    except errors.NotFound:
        return f"{key} does not exist"
    status = daemonset_statements.rollout_status(body)
    return "" if status.done else f"{key}: {status.message}"
