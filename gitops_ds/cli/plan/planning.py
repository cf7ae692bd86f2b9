"""Plans of the command line, against a cluster or a snapshot, also those of `diff`, `drift` and
`apply`.

Modules that only some plans need are imported on demand: most of the time of a small plan is the
start of the program.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial

import msgspec

from gitops_ds.cli.snapshot import cluster_snapshot
from gitops_ds.core import errors
from gitops_ds.core.change import Plan
from gitops_ds.core.cluster import ClusterReader
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.live import Live
from gitops_ds.core.objects import CommitId, Key
from gitops_ds.core.plain_text import counted, listed
from gitops_ds.core.rollouts.template_cause import TemplateCause
from gitops_ds.core.sources.bundle import Bundle, ClusterFacts
from gitops_ds.core.sources.source_tree import SourceTree
from gitops_ds.core.values import replace
from gitops_ds.deploy import owner_identity
from gitops_ds.deploy.apply import plan_draft
from gitops_ds.deploy.apply.plan_draft import PlanDraft
from gitops_ds.deploy.live_state import LocatedBundle
from gitops_ds.deploy.owner_identity import OwnerKey
from gitops_ds.deploy.pipeline import open_repository, prepare
from gitops_ds.deploy.pipeline.prepare import Prepared
from gitops_ds.deploy.plan import planner
from gitops_ds.deploy.target import PlanTarget
from gitops_ds.kube.client import connect
from gitops_ds.ownership import object_owner
from gitops_ds.ownership.object_owner import Stamp
from gitops_ds.ownership.options import ApplyOptions, PlanContext
from gitops_ds.rollouts.causes import template_causes
from gitops_ds.rollouts.staging import staging, targets


class ApplyTarget(msgspec.Struct, frozen=True):
    """The cluster of the repository, and its connection, which `snapshot_file` or `simulate`
    replace.

    `force_local`: apply even if a running service follows another commit.
    """

    cluster: str = ""
    namespace: str = ""
    connection: connect.Connection = msgspec.field(default_factory=connect.Connection)
    snapshot_file: str | None = None
    simulate: int | None = None
    force_local: bool = False

    @property
    def is_live(self) -> bool:
        """Whether a cluster is read."""
        return self.snapshot_file is None and self.simulate is None


class PlanRequest(msgspec.Struct, frozen=True):
    """What is planned: the read files of a repository, for a cluster, with these options."""

    repository: open_repository.RepositoryRef
    snapshot: SourceTree
    target: ApplyTarget
    options: ApplyOptions


def prepared(snapshot: SourceTree, target: ApplyTarget, *, advice: bool = False) -> Prepared:
    """The bundle for the target's cluster with its blocking findings; with `advice` all of them."""
    return prepare.prepare(
        snapshot, cluster=target.cluster, namespace=target.namespace, advice=advice
    )


def deployable(request: PlanRequest) -> Prepared:
    """The bundle if it can be deployed; else raises Refused with the first findings."""
    prepared_commit = _with_content(request)
    if prepared_commit.deployable:
        return prepared_commit
    from gitops_ds.core.redaction import report

    refused = [finding for finding in prepared_commit.findings if finding.refused]
    first = "\n".join(f"  {report.line_of(finding)}" for finding in refused[:10])
    raise errors.Refused(
        f"{counted(len(refused), 'finding')} must be fixed first (`gitops-ds check` lists all); "
        f"nothing was changed:\n{first}"
    )


def _with_content(request: PlanRequest) -> Prepared:
    """The bundle with its blocking findings. Raises UsageError for a repository without content,
    unless deleting everything is allowed.
    """
    snapshot = request.snapshot
    prepared_commit = prepared(snapshot, request.target)
    if not (request.options.guards.prune or prepared_commit.bundle.manifests):
        from gitops_ds.cli.check import run

        # files with only advice are content too
        whole = prepared(snapshot, request.target, advice=True)
        run.require_content(request.repository.display_path, snapshot, (whole,))
    return prepared_commit


def owner_key(prepared_commit: Prepared, repository: open_repository.RepositoryRef) -> OwnerKey:
    """What owns the objects of the repository in that cluster."""
    bundle = prepared_commit.bundle
    return OwnerKey(bundle.owner_hint, repository.identity, repository.path, bundle.cluster.name)


@asynccontextmanager
async def drafted(request: PlanRequest) -> AsyncIterator[PlanDraft]:
    """A plan for a live cluster, which is open inside. Raises Refused for a bundle that can't be
    deployed.
    """
    prepared_commit = deployable(request)
    async with connect.reading(*connection(request, prepared_commit)) as cluster:
        yield (await draft(cluster, request, prepared_commit))[1]


def connection(
    request: PlanRequest, prepared_commit: Prepared
) -> tuple[connect.Connection, ClusterFacts]:
    """The connection to the cluster, and the facts of its file in the repository."""
    target = request.target
    return target.connection.naming(target.cluster), prepared_commit.bundle.cluster


async def draft(
    cluster: ClusterReader, request: PlanRequest, prepared_commit: Prepared
) -> tuple[PlanTarget, PlanDraft]:
    """The target in an open cluster, and the plan for it."""
    key = owner_key(prepared_commit, request.repository)
    place = await _place(cluster, key, request.target, _evidence(request))
    bundle, commit = prepared_commit.bundle, request.snapshot.commit
    causes = partial(_causes, request)
    return place, await plan_draft.draft(place, bundle, commit, request.options, causes=causes)


async def _causes(
    request: PlanRequest, located: LocatedBundle, state: DeployerState, live: Live
) -> Mapping[Key, TemplateCause]:
    """The commits of templates that the state lacks. The repository is opened only for them."""
    head, named = located.commit, request.repository
    if head is None or named.where is None:
        return {}
    wanted = template_causes.wanted(located.bundle, state, live)
    if state.last_attempted == head.id and not wanted:
        return {}
    from gitops_ds.cli.plan import commit_source

    async with open_repository.opened(named) as repository:
        scope = request.target.cluster, request.target.namespace
        finder = commit_source.causes(repository, named.path, *scope)
        return await finder.of(located, state, live)


async def plan(request: PlanRequest) -> Plan:
    """The changes of an apply; without a cluster, for a cluster snapshot or generated nodes."""
    if request.target.is_live:
        async with drafted(request) as drafted_plan:
            return with_stages(drafted_plan.plan, drafted_plan.bundle, drafted_plan.inputs.live)
    made = planned(request)
    return with_stages(made.plan, made.bundle, made.live)


class SnapshotPlan(msgspec.Struct, frozen=True):
    """A plan without a cluster, with its inputs."""

    plan: Plan
    bundle: Bundle
    live: Live
    context: PlanContext


def planned(request: PlanRequest) -> SnapshotPlan:
    """A plan for a cluster snapshot or generated nodes. Raises Refused for a bundle that can't be
    deployed.
    """
    prepared_commit, target = deployable(request), request.target
    live = (
        cluster_snapshot.read(target.snapshot_file)
        if target.snapshot_file is not None
        else cluster_snapshot.simulated(target.simulate or 0)
    )
    commit, bundle = request.snapshot.commit, prepared_commit.bundle
    key = owner_key(prepared_commit, request.repository)
    stamp = Stamp(
        owner_identity.of_live(key, bundle.manifests, live.objects),
        request.repository.identity,
        commit.id if commit else "",
        commit.subject if commit else "",
    )
    # a snapshot has no inventory: objects with the label of the owner replace it
    ours = {key for key, body in live.objects.items() if object_owner.labelled(body, stamp.owner)}
    context = PlanContext(stamp, request.options, inventory=ours)
    plan = planner.plan(bundle, live, context)
    changes = targets.with_words(plan.changes, staging.words(bundle, live, context))
    return SnapshotPlan(replace(plan, changes=changes), bundle, live, context)


def with_stages(plan: Plan, bundle: Bundle, live: Live) -> Plan:
    """The plan with the previews of its staged rollouts on the nodes of the cluster."""
    if not bundle.rollouts:
        return plan
    from gitops_ds.deploy.pipeline.change_forecast import StagedForecasts

    changes = StagedForecasts().over(plan.changes, live.objects, bundle, live.nodes or ())
    return replace(plan, changes=tuple(changes))


def _evidence(request: PlanRequest) -> owner_identity.Evidence:
    repository, snapshot = request.repository, request.snapshot

    async def contains(commit: CommitId) -> bool:
        from gitops_ds.source.git import revision
        from gitops_ds.source.git.object_reader import BranchMovement

        if repository.where is None:
            return False
        async with open_repository.opened(repository) as repo:
            # The history of a work tree is that of its HEAD.
            try:
                tip = snapshot.commit.id if snapshot.commit else await repo.tip(revision.Head())
            except errors.RevisionUnknown:
                return False
            await repo.fetch(tip)
            return await repo.movement(commit, tip) is not BranchMovement.REWRITTEN

    return owner_identity.Evidence(
        contains,
        lambda other, _: owner_identity.is_elsewhere(other, repository.identity),
        time.time(),
        adopt=request.options.adopt,
    )


async def _place(
    cluster: ClusterReader, key: OwnerKey, target: ApplyTarget, evidence: owner_identity.Evidence
) -> PlanTarget:
    namespace = target.connection.state_namespace
    owner = await owner_identity.find(cluster, namespace, key, evidence)
    return PlanTarget(
        cluster,
        namespace,
        owner.id,
        key.repository,
        key.path,
        contains=evidence.contains,
        unused=owner.unused,
    )


_SHOWN = 3


class Uncommitted(msgspec.Struct, frozen=True):
    """The read files that differ from the commit (empty: no commit exists yet)."""

    commit: str
    files: tuple[str, ...]

    def __str__(self) -> str:
        """The files, the first by name."""
        return listed(self.files, _SHOWN)


async def uncommitted(
    repository: open_repository.RepositoryRef, side: SourceTree
) -> Uncommitted | None:
    """The difference between the work tree and the commit of `apply`; None if they are equal, or
    without a work tree of Git.

    `side` is one of the two, already read; the other is read here.
    """
    if repository.where is None or repository.directory is None:
        return None
    try:
        work = side if side.commit is None else open_repository.standing(repository)
        async with open_repository.opened(repository) as repo:
            commit = (
                side
                if side.commit
                else await open_repository.unexpanded(repo, None, repository.path)
            )
    except errors.RevisionUnknown:
        return Uncommitted("", tuple(sorted(map(str, side.files))))
    except (
        errors.SourceError
    ):  # the comparison is optional: steps that require Git report the error
        return None
    differ = {
        path
        for path in {*work.files, *commit.files}
        if work.files.get(path) != commit.files.get(path)
    }
    return (
        Uncommitted(commit.commit.id if commit.commit else "", tuple(sorted(map(str, differ))))
        if differ
        else None
    )
