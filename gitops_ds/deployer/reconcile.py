"""One pass of the deployer: what a commit says, against what the cluster holds, made so, and
remembered.

Everything a pass needs is read at its start, from Git and the cluster; what it leaves behind is on
the objects and in the state. So it may end at any instant, and the next one goes on from where the
world is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gitops_ds import errors
from gitops_ds.apimachinery import rollout_status
from gitops_ds.deployer import applier, deletion_contents, live_state, state_store
from gitops_ds.model import names
from gitops_ds.model.bundle import Bundle
from gitops_ds.model.change import Change, Operation, Plan
from gitops_ds.model.cluster import Cluster
from gitops_ds.model.deployment import DeployerState, Generation
from gitops_ds.model.events.base import Emit
from gitops_ds.model.events.deployer import (
    Applied,
    DriftCorrected,
    NotApplied,
    Planned,
    Reconciled,
)
from gitops_ds.model.live import Live
from gitops_ds.model.objects import DAEMONSET, CommitId, Key
from gitops_ds.model.skipped import DriftPolicy, Skipped
from gitops_ds.model.snapshot import CommitInfo
from gitops_ds.plan import (
    deletions,
    drift,
    ignore_differences,
    planner,
    suspension,
)
from gitops_ds.plan.allow_list import EVERYTHING, AllowList
from gitops_ds.plan.ignore_differences import IgnoreRule
from gitops_ds.plan.impersonation import Impersonation
from gitops_ds.plan.options import ALONE, HOLD_SECONDS, OtherOwners, PlanContext
from gitops_ds.plan.prune import Guards
from gitops_ds.plan.tracking_labels import Stamp

POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """What a caller wants of a pass.

    `patience` is how many seconds agents are waited for that others depend on; `go_back` the
    consent to an older commit; `hold_for` the seconds after which drift that is held is corrected,
    `compare_every` those after which even a cluster that no watch told anything of is compared.
    `contested` are objects whose drift is not corrected now; `live_words`: annotations that steer
    us count also where they were written in the cluster. `deferred` are refusals of the API server
    that are not tried again now.
    """

    guards: Guards = Guards()
    adopt: bool = False
    force_conflicts: bool = False
    drift: DriftPolicy = DriftPolicy.CORRECT
    approved: str = ""
    patience: float = 300.0
    go_back: bool = False
    hold_for: float = HOLD_SECONDS
    compare_every: float = 600.0
    ignore: tuple[IgnoreRule, ...] = ()
    impersonation: Impersonation | None = None
    allowed: AllowList = EVERYTHING
    neighbours: OtherOwners = ALONE
    contested: frozenset[Key] = frozenset()
    live_words: bool = True
    deferred: Mapping[Key, Skipped] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeployTarget:
    """Where a deployer works: the cluster, the namespace of its state, the id under which it owns
    objects, and the time there.

    `wrote` is told of each object that was written, with its version, and with "" for one that was
    deleted. `contents` lists what is in a Namespace that would be deleted.
    """

    cluster: Cluster
    namespace: str
    owner: str
    repository: str
    path: str = ""
    clock: Callable[[], float] = time.time
    wrote: Callable[[Key, str], None] = lambda _key, _version: None
    contents: deletion_contents.Read = deletion_contents.read


@dataclass(frozen=True, slots=True)
class PreparedPlan:
    """A plan with what it was made from, ready to be carried out."""

    plan: Plan
    bundle: Bundle
    commit: CommitInfo | None
    writer: applier.Applier
    state: DeployerState


async def draft(
    place: DeployTarget,
    bundle: Bundle,
    commit: CommitInfo | None,
    asked: ApplyOptions,
    *,
    seen: Live | None = None,
) -> PreparedPlan:
    """The plan for a bundle. `seen` is what caches hold; without it the cluster is asked.

    Raises ClusterError. Sends dry runs, and only for objects that are not plainly as they shall be;
    writes nothing.
    """
    known = await state_store.load(place.cluster, place.namespace, place.owner)
    located = await live_state.locate(place.cluster, bundle, known.inventory, commit)
    return await draft_with(place, located, asked, known=known, live=seen)


async def draft_with(
    place: DeployTarget,
    located: live_state.LocatedBundle,
    asked: ApplyOptions,
    *,
    known: DeployerState,
    live: Live | None = None,
) -> PreparedPlan:
    """As `draft`, with a state that was read before."""
    bundle, commit = located.bundle, located.commit
    seen = live or await live_state.read(place.cluster, located.resources, place.owner)
    # Ours by their label alone, where the inventory was lost.
    strays, _ = await live_state.resources_of(
        place.cluster, replace(bundle, manifests={}), seen.objects.keys() - located.resources.keys()
    )
    resources = {**located.resources, **strays}
    stamp = Stamp(
        place.owner, place.repository, commit.id if commit else "", commit.subject if commit else ""
    )
    terms = PlanContext(
        stamp,
        guards=asked.guards,
        adopt=asked.adopt,
        force_conflicts=asked.force_conflicts,
        drift=asked.drift,
        approved=asked.approved,
        applied=known.digests,
        condemned=known.approved,
        left=known.drift,
        now=place.clock(),
        hold_for=asked.hold_for,
        drift_of_agent=bundle.drift,
        impersonation=asked.impersonation,
        allowed=asked.allowed,
        neighbours=asked.neighbours,
        contested=asked.contested,
        live_words=asked.live_words,
        deferred=asked.deferred,
        inventory=known.inventory if known.last_attempted else None,
        agents=known.agents,
    )
    served = replace(
        bundle, manifests={key: m for key, m in bundle.manifests.items() if key in resources}
    )
    served = ignore_differences.over(served, seen, asked.ignore)
    gone, _ = deletions.of(served, seen, terms)
    seen = await live_state.with_config_maps_in_use(place.cluster, seen, gone)
    seen = await place.contents(place.cluster, seen, deletions.to_list(gone, seen, terms))
    writer = applier.Applier(place.cluster, resources, seen, terms)
    undecided = planner.undecided(served, seen, terms)
    answers = await applier.dry_run(writer, undecided)
    kept = served.manifests.keys() - {manifest.key for manifest in undecided}
    made = planner.plan(served, seen, terms, answers, kept=kept)
    if moving := planner.moving(made):
        seen = await live_state.with_pods(place.cluster, seen, moving)
        made = planner.plan(served, seen, terms, answers, kept=kept)
    suspended = suspension.refusals(made.changes, seen.objects, live_words=asked.live_words)
    made = replace(
        made,
        changes=_without(made.changes, suspended),
        refusals=(*located.refusals, *made.refusals, *suspended),
    )
    return PreparedPlan(made, bundle, commit, writer, known)


async def carry_out(
    place: DeployTarget,
    ready: PreparedPlan,
    asked: ApplyOptions,
    emit: Emit,
    clock: Callable[[], float],
) -> tuple[Reconciled, DeployerState]:
    """Applies the plan, tells every write, and saves the state where it changed; how it ended, and
    the state from now on.

    Raises NotPermitted before the first write where the plan's effect on nodes is unknown.
    """
    made = ready.plan
    if unknown := made.unknown_nodes:
        raise errors.NotPermitted(f"nothing was applied: {unknown.message}")
    _tell_plan(ready, emit, clock)

    def tell(done: applier.AppliedObject) -> None:
        place.wrote(
            done.change.key, str(done.body["metadata"]["resourceVersion"]) if done.body else ""
        )
        emit(Applied(clock(), done.change, done.warnings))
        if drifted := made.drifted.get(done.change.key):
            emit(DriftCorrected(clock(), done.change.key, drifted, drift.words(drifted)))

    ready = await _announced(place, ready)
    outcome = await applier.apply_changes(
        ready.writer, made.changes, _waits(place.cluster, ready.bundle, asked.patience), tell
    )
    for change, refusal in outcome.refused:
        emit(NotApplied(clock(), refusal, change))
    after = _remembered(ready, outcome, place)
    if after != ready.state:
        after = await _save(place, after)
    ended = Reconciled(
        clock(),
        made.commit,
        len(outcome.written),
        (*made.refusals, *(refusal for _, refusal in outcome.refused)),
    )
    emit(ended)
    return ended, after


def _waits(cluster: Cluster, bundle: Bundle, patience: float) -> applier.Dependencies:
    async def agents(named: Sequence[str]) -> str:
        keys = [
            key
            for key, manifest in bundle.manifests.items()
            if manifest.agent in named and key.kind == "DaemonSet"
        ]
        return await _until(patience, keys, lambda key: _missing(cluster, key))

    async def ends(keys: Sequence[Key]) -> str:
        return await _until(patience, keys, lambda key: _there(cluster, key))

    return applier.Dependencies(agents, ends)


async def _until(patience: float, keys: Sequence[Key], say: Callable[[Key], Awaitable[str]]) -> str:
    """What is said of the keys in the end; nothing as soon as nothing is said of any."""
    deadline = asyncio.get_running_loop().time() + patience
    while True:
        said = [told for key in keys if (told := await _tried(say, key))]
        if not said or asyncio.get_running_loop().time() >= deadline:
            return "; ".join(said)
        await asyncio.sleep(POLL_SECONDS)


async def _tried(say: Callable[[Key], Awaitable[str]], key: Key) -> str:
    """As `say`; an error that passes by itself is a reason to wait, as long as this replica leads."""
    try:
        return await say(key)
    except errors.NotLeading:
        raise
    except errors.ClusterError as error:
        if not error.retryable:
            raise
        return f"{key}: {error}"


async def _there(cluster: Cluster, key: Key) -> str:
    try:
        await cluster.get(DAEMONSET, key.namespace, key.name)
    except errors.NotFound:
        return ""
    return f"the pods of {key} are not gone yet"


async def _missing(cluster: Cluster, key: Key) -> str:
    try:
        told = rollout_status.judge(await cluster.get(DAEMONSET, key.namespace, key.name))
    except errors.NotFound:
        return f"{key} is not there"
    return "" if told.done else f"{key}: {told.message}"


def _without(changes: Sequence[Change], refused: Sequence[Skipped]) -> tuple[Change, ...]:
    left_out = {refusal.key for refusal in refused}
    return tuple(change for change in changes if change.key not in left_out)


async def compare(
    place: DeployTarget, ready: PreparedPlan, emit: Emit, clock: Callable[[], float]
) -> DeployerState:
    """Tells the plan, carries nothing out, and notes what waits; the state from now on."""
    made, terms = ready.plan, ready.writer.terms
    _tell_plan(ready, emit, clock)
    standing = drift.standing(made.drifted, terms.left, terms.now)
    after = replace(
        ready.state,
        waiting=frozenset(change.key for change in made.writes) | _suspended(made),
        drift=standing,
    )
    return after if after == ready.state else await _save(place, after)


def _suspended(made: Plan) -> frozenset[Key]:
    return frozenset(
        refusal.key for refusal in made.refusals if refusal.key and refusal.reason.effect.suspended
    )


def _tell_plan(ready: PreparedPlan, emit: Emit, clock: Callable[[], float]) -> None:
    made, terms = ready.plan, ready.writer.terms
    if made.writes or made.refusals:
        emit(Planned(clock(), made))
    for told in drift.events(made.drifted, terms.left, terms.now, terms.hold_for):
        emit(told)


async def _announced(place: DeployTarget, ready: PreparedPlan) -> PreparedPlan:
    """Notes beforehand what will be created, and whose end was approved: a process that is killed
    in between forgets nothing.
    """
    known, made = ready.state, ready.plan
    inventory = known.inventory | {
        change.key for change in made.changes if change.operation is Operation.CREATE
    }
    approved = known.approved | made.approved
    if (inventory, approved) == (known.inventory, known.approved):
        return ready
    noted = replace(
        known,
        repository=place.repository,
        cluster=made.cluster,
        inventory=inventory,
        approved=approved,
    )
    return replace(ready, state=await _save(place, noted))


def _remembered(
    ready: PreparedPlan, outcome: applier.ApplyOutcome, place: DeployTarget
) -> DeployerState:
    """The state after the pass: a deleted object leaves the inventory only when its delete was
    taken, or when it is not there.

    What was to be created and was refused stays noted: each try would else write it in and take it
    out, and so wake the next one.
    """
    old, made = ready.state, ready.plan
    gone = {done.change.key for done in outcome.written if done.body is None}
    written = {done.change.key: done.change for done in outcome.written if done.change.manifest}
    settled = {
        change.key: change for change in made.changes if change.operation is Operation.KEEP
    } | written
    refused = {change.key for change, _ in outcome.refused}
    gone |= old.inventory - settled.keys() - refused - ready.writer.live.objects.keys()
    digests = {key: digest for key, digest in old.digests.items() if key not in gone}
    terms = ready.writer.terms
    standing = drift.standing(made.drifted, terms.left, terms.now)
    digests |= {key: change.manifest.digest for key, change in settled.items() if change.manifest}
    clean = not outcome.refused and all(
        refusal.reason.effect.keeps_commit_good for refusal in made.refusals
    )
    return replace(
        old,
        repository=place.repository,
        cluster=made.cluster,
        last_attempted=made.commit,
        last_good=made.commit if clean else old.last_good,
        inventory=(inventory := (old.inventory | settled.keys() | _found_again(ready)) - gone),
        agents=_agents(old, settled.values(), inventory),
        digests=digests,
        generations=_generations(ready, outcome, gone),
        revisions=_revisions(ready, gone),
        waiting=_suspended(made),
        drift={key: left for key, left in standing.items() if key not in written},
        approved=made.approved - gone,
    )


def _generations(
    ready: PreparedPlan, outcome: applier.ApplyOutcome, gone: set[Key]
) -> Mapping[Key, Generation]:
    """Of every DaemonSet that is now as the plan has it; of the others what was known."""
    kept = [change.key for change in ready.plan.changes if change.operation is Operation.KEEP]
    bodies = {key: ready.writer.live.objects.get(key) for key in kept}
    bodies |= {done.change.key: done.body for done in outcome.written}
    found = {key: one for key, one in ready.state.generations.items() if key not in gone}
    for key, body in bodies.items():
        metadata = (body or {}).get("metadata") or {}
        commit = (metadata.get("annotations") or {}).get(names.COMMIT)
        if key.kind == DAEMONSET.kind and commit and metadata.get("generation"):
            found[key] = Generation(int(metadata["generation"]), CommitId(commit))
    return found


def _found_again(ready: PreparedPlan) -> frozenset[Key]:
    """Objects of ours that a lost inventory held: they are in the new one, also those that a guard
    keeps.
    """
    if ready.writer.terms.inventory is not None:
        return frozenset()
    return frozenset(deletions.of(ready.bundle, ready.writer.live, ready.writer.terms)[0])


def _agents(
    old: DeployerState, settled: Iterable[Change], inventory: frozenset[Key]
) -> Mapping[Key, str]:
    found = {key: agent for key, agent in old.agents.items() if key in inventory}
    for change in settled:
        if change.manifest is not None:
            found.pop(change.key, None)
            found |= (
                {change.key: change.manifest.agent}
                if change.manifest.agent and change.key in inventory
                else {}
            )
    return found


def _revisions(ready: PreparedPlan, gone: set[Key]) -> Mapping[Key, Mapping[int, CommitId]]:
    found = {key: dict(known) for key, known in ready.state.revisions.items() if key not in gone}
    for change in ready.plan.changes:
        rollout, commit = change.rollout, _commit(ready.plan, change)
        if rollout is None or commit is None or change.operation is Operation.DELETE:
            continue
        kept = {revision.number for revision in ready.writer.live.revisions.get(change.key, ())}
        # a number above it was foretold, and its revision is still to come
        newest = max(kept, default=0)
        known = {
            number: commit
            for number, commit in found.get(change.key, {}).items()
            if number in kept or number > newest
        }
        moved = rollout.old is None or rollout.old != rollout.new
        if change.operation is not Operation.KEEP and moved:
            known[rollout.becomes] = commit
        elif rollout.current is not None:
            known.setdefault(
                rollout.current, found.get(change.key, {}).get(rollout.current, commit)
            )
        found[change.key] = known
    return found


def _commit(plan: Plan, change: Change) -> CommitId | None:
    """What stands behind a change: its own object of the cluster, else the plan's commit."""
    holder = change.manifest.holder if change.manifest else None
    return holder.commit if holder else plan.commit


def due(known: DeployerState, asked: ApplyOptions, now: float) -> float:
    """When a cluster in which nothing moves is to be compared again (seconds since 1970)."""
    ends = (
        left.since + asked.hold_for
        for left in known.drift.values()
        if left.choice is DriftPolicy.HOLD
    )
    return min([now + asked.compare_every, *(end for end in ends if end > now)])


async def _save(place: DeployTarget, after: DeployerState) -> DeployerState:
    """Saves; when another process wrote meanwhile, over what it wrote, with all that either knows:
    both saw the same cluster.
    """
    for _ in range(5):
        try:
            return await state_store.save(place.cluster, place.namespace, place.owner, after)
        except (errors.Conflict, errors.AlreadyExists):
            theirs = await state_store.load(place.cluster, place.namespace, place.owner)
            after = replace(
                after,
                inventory=after.inventory | theirs.inventory,
                agents={**theirs.agents, **after.agents},
                digests={**theirs.digests, **after.digests},
                generations={**theirs.generations, **after.generations},
                revisions={**theirs.revisions, **after.revisions},
                version=theirs.version,
            )
    return await state_store.save(place.cluster, place.namespace, place.owner, after)
