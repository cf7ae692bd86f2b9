"""The DaemonSets of a cluster with counters, commit, revision and health, from one set of lists."""

from __future__ import annotations

import asyncio
import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from gitops_ds.core import errors, names, stated_reasons
from gitops_ds.core.cluster import ClusterReader
from gitops_ds.core.daemonset import Counts, DaemonSet
from gitops_ds.core.decision import Observation
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.health import Health
from gitops_ds.core.live import Revision
from gitops_ds.core.objects import CommitId, Key, short, template_of
from gitops_ds.core.rollouts.rollout_progress import RolloutProgress
from gitops_ds.core.rollouts.staged_rollout import StageHold, StageProgress
from gitops_ds.core.skip_reasons import DriftPolicy
from gitops_ds.core.sources.source_status import EFFECTS, SourceStatus
from gitops_ds.core.values import replace
from gitops_ds.deploy import source_status_store, state_store
from gitops_ds.kube.apimachinery import request_costs, revisions, timestamps
from gitops_ds.ownership import object_owner
from gitops_ds.rollouts.state import proofs
from gitops_ds.rollouts.views import rollout_tracker, staged_rollouts
from gitops_ds.rollouts.views.staged_rollouts import StagedRollout
from gitops_ds.status import health


class Agent(msgspec.Struct, frozen=True):
    """One DaemonSet at one moment.

    `source` is the status of its owner's repository; None if no service follows one. `stale` is
    the reason if the watches are too old to judge whether the agent is in sync, else empty.
    `rollout` is the staged rollout in progress.
    """

    seen: Observation
    health: Health
    state: DeployerState
    source: SourceStatus | None = None
    stale: str = ""
    rollout: StagedRollout | None = None

    @property
    def key(self) -> Key:
        """Its name."""
        return self.seen.daemonset.key

    @property
    def owner(self) -> str:
        """The ID of the owner that applied it; empty without one, and for a copy."""
        return "" if is_copy(self) else owner(self.seen)

    @property
    def counts(self) -> Counts:
        """The counters of its nodes; by its status if nodes may not be listed."""
        return self.health.counts or health.counts_without_nodes(self.seen)

    @property
    def hold(self) -> StageHold | None:
        """Why no further node gets the template: the hold of its rollout, or the one at rest."""
        if self.rollout is not None:
            return self.rollout.stages.hold
        return staged_rollouts.hold_at_rest(self.seen)

    @property
    def history(self) -> tuple[Revision, ...]:
        """The revisions owned by the DaemonSet, oldest first."""
        uid = self.seen.daemonset.uid
        return tuple(
            r
            for r in self.seen.revisions
            if (owner := revisions.owner_of(r)) is not None and owner.uid == uid
        )

    @property
    def current(self) -> Revision | None:
        """The revision with the DaemonSet's template."""
        template = self.seen.daemonset.template
        return next(
            (r for r in reversed(self.history) if revisions.same_template(r.template, template)),
            None,
        )

    @property
    def target(self) -> Revision | None:
        """The target revision of its rollout, with the hash of its pods and its number after the
        promotion.
        """
        rollout = self.rollout
        if rollout is None:
            return None
        revision = next((r for r in self.seen.revisions if r.uid == rollout.target.uid), None)
        number = rollout.number(self.seen)
        return revision and replace(revision, hash=rollout.target.hash, number=number)

    def commit_of(self, revision: Revision) -> str:
        """The commit that gave a revision its template, the last one if several did. Empty for a
        template that no commit has.
        """
        if is_copy(self):  # the built-in controller copies the annotations to revisions
            return ""
        by_content = self.state.commits.get(self.key)
        if by_content is not None:
            return by_content.get(proofs.identity(revision.template), "")
        commits: Mapping[int, CommitId] = self.state.revisions.get(self.key, {})
        annotations = revisions.annotations_of(revision)
        return commits.get(revision.number) or str(annotations.get(names.COMMIT) or "")

    def nodes_by_hash(self) -> Counter[str]:
        """The number of nodes that run each revision, by the hash of the revision."""
        return health.nodes_by_hash(self.seen)


class Owners(msgspec.Struct, frozen=True):
    """The states of owners, and the status of their repositories, by the ID of the owner."""

    states: Mapping[str, DeployerState]
    sources: Mapping[str, SourceStatus]

    def applied(self, seen: Observation) -> bool:
        """Whether one of them applied a DaemonSet, as far as known."""
        id = owner(seen)
        return bool(id) and _has(self.states.get(id, DeployerState()), seen.daemonset.key)

    def of(self, agent: Agent) -> Agent:
        """The agent with the state of its owner and the status of its repository."""
        id = owner(agent.seen)
        state = self.states.get(id, DeployerState())
        return replace(agent, state=state, source=self.sources.get(id))


async def read_owners(
    cluster: ClusterReader, state_namespace: str, seen: Sequence[Observation], now: float
) -> Owners:
    """The owners of these DaemonSets. Raises ClusterError."""
    ids = sorted({owner(observation) for observation in seen} - {""})
    states = await asyncio.gather(*(_state(cluster, state_namespace, id) for id in ids))
    sources = await _sources(cluster, state_namespace, now) if ids else {}
    return Owners(dict(zip(ids, states, strict=True)), sources)


async def _sources(
    cluster: ClusterReader, namespace: str, now: float
) -> Mapping[str, SourceStatus]:
    try:
        return await source_status_store.load_all(cluster, namespace, now)
    except (errors.Forbidden, errors.Invalid, errors.BadRequest):
        return {}


async def _state(cluster: ClusterReader, namespace: str, id: str) -> DeployerState:
    try:
        return await state_store.load(cluster, namespace, id)
    except (errors.Forbidden, errors.Invalid, errors.BadRequest):
        # without that permission the other columns are still shown
        return DeployerState()


async def with_state(cluster: ClusterReader, state_namespace: str, agent: Agent) -> Agent:
    """The agent with the state of its owner and the status of its repository. Raises
    ClusterError.
    """
    return (await read_owners(cluster, state_namespace, [agent.seen], agent.seen.now)).of(agent)


def owner(seen: Observation) -> str:
    """The ID of the owner that applied it; empty for an object of another tool, and for a copy."""
    daemonset = seen.daemonset
    labelled = "" if _is_marked(daemonset) else object_owner.owner_of(daemonset.raw)
    return daemonset.owner or labelled


def is_copy(agent: Agent) -> bool:
    """Whether its labels and annotations were copied from another object: its tracking ID names
    that one, or the owner has not applied it.
    """
    daemonset = agent.seen.daemonset
    is_other = _is_marked(daemonset) or not _has(agent.state, daemonset.key)
    return not daemonset.owner and is_other


def _is_marked(daemonset: DaemonSet) -> bool:
    """Whether the tracking ID of a DaemonSet names another object."""
    mark = object_owner.mark_of(daemonset.raw)
    owner = object_owner.owner_of(daemonset.raw)
    return mark not in (None, object_owner.mark(owner, daemonset.key))


def _has(state: DeployerState, key: Key) -> bool:
    """Whether an owner applied an object, by its stored state; True without one."""
    return not state.version or key in state.inventory


def counts_json(counts: Counts) -> dict[str, int]:
    """The counters as JSON."""
    return {
        "desired": counts.desired,
        "current": counts.current,
        "ready": counts.ready,
        "upToDate": counts.updated,
        "available": counts.available,
        "misscheduled": counts.misscheduled,
    }


def missing(
    key: Key, state: DeployerState, now: float, source: SourceStatus | None = None
) -> Agent:
    """An agent that was applied and does not exist in the cluster."""
    nothing = DaemonSet(key, "", {}, {}, ())
    return Agent(Observation(now, nothing, ()), health.judge(None), state, source)


# kubectl's names of the kind
KIND_WORDS = frozenset(
    ("ds", "daemonset", "daemonsets", "ds.apps", "daemonset.apps", "daemonsets.apps")
)


def name_of(text: str) -> str:
    """The name in `ds/NAME`, or the text itself."""
    kind, slash, name = text.partition("/")
    return name if slash and kind.lower() in KIND_WORDS else text


def find_agent(agents: tuple[Agent, ...], name: str, namespace: str) -> Agent:
    """The agent named `ds/NAME` or `NAME`. Raises NoMatch without one, UsageError for several."""
    short = name_of(name)
    matches = select_agents(agents, [name], namespace)
    if len(matches) > 1:
        spaces = ", ".join(agent.key.namespace for agent in matches)
        raise errors.UsageError(f"{short} exists in the namespaces {spaces}: choose one with -n")
    return matches[0]


def select_agents(
    agents: Sequence[Agent], names: Sequence[str], namespace: str
) -> tuple[Agent, ...]:
    """The agents of a namespace (empty: all) with one of these names (none: every name). Raises
    NoMatch for a name without an agent, with the nearest one.
    """
    chosen = select_keys([agent.key for agent in agents], names, namespace)
    return tuple(agent for agent in agents if agent.key in chosen)


def select_keys(keys: Sequence[Key], names: Sequence[str], namespace: str) -> frozenset[Key]:
    """As `select_agents`, by the names of all agents."""
    inside = {key for key in keys if namespace in ("", key.namespace)}
    chosen_names = {name_of(name) for name in names}
    known = {key.name for key in inside}
    for missing in sorted(chosen_names - known):
        where = f" in namespace {namespace}" if namespace else ""
        near = difflib.get_close_matches(missing, known, 1)
        hint = f'did you mean "{near[0]}"?' if near else "`gitops-ds get` lists them"
        raise errors.NoMatch(f'daemonsets.apps "{missing}" not found{where}: {hint}')
    return frozenset(key for key in inside if is_selected(key, names, namespace))


def is_selected(key: Key, names: Sequence[str], namespace: str) -> bool:
    """Whether an agent is in the namespace (empty: all) and has one of the names (none: every)."""
    is_inside = namespace in ("", key.namespace)
    return is_inside and (not names or key.name in map(name_of, names))


def check_in_git(agent: Agent) -> None:
    """Raises Refused for an agent with a template in the cluster, which no commit restores."""
    commit = agent.seen.daemonset.annotations.get(names.COMMIT, "")
    if source := template_of(commit):
        kind, namespace, name = source.split("/")
        raise errors.Refused(
            f"{agent.key} comes from {kind} {namespace}/{name}, not from Git: change that object "
            "to go back "
            f"(kubectl -n {namespace} edit {kind} {name}); `gitops-ds history ds/{agent.key.name} "
            "--revision N` shows a template"
        )


def sync_of(agent: Agent) -> tuple[str, str]:
    """Synced, OutOfSync, Held, Suspended or Unknown, and the reason. Synced requires a service
    that compares the agent with Git.
    """
    annotations, source = agent.seen.daemonset.annotations, agent.source
    if not annotations.get(names.COMMIT):
        return "Unknown", "not applied by gitops-ds"
    if is_copy(agent):
        return "Unknown", "not applied by gitops-ds: its annotations are copied"
    if agent.stale:
        return "Unknown", agent.stale
    if source is None or not source.active:
        return "Unknown", UNFOLLOWED
    if not source.agents_synced:
        return EFFECTS[source.condition].sync, source.message
    if left := agent.state.drift.get(agent.key):
        return ("Held" if left.choice is DriftPolicy.HOLD else "OutOfSync"), left.words
    if agent.key in agent.state.kept:
        return "Held", "left Git and is kept; `gitops-ds plan` shows why"
    if annotations.get(names.HOLD):
        return "Held", f"on hold by the annotation {names.HOLD}"
    if agent.key in agent.state.waiting:
        reason = agent.seen.daemonset.suspend_reason
        return "OutOfSync", stated_reasons.after("suspended, with pending changes", reason)
    if changed_since(agent):
        return "Unknown", "changed since the last comparison"
    cause = agent.state.causes.get(agent.key)
    if cause is not None and not cause.is_applied:
        return "OutOfSync", f"the template of commit {short(cause.commit)} is not applied"
    return "Synced", ""


UNFOLLOWED = "no running service follows its repository; `gitops-ds drift` compares"


def changed_since(agent: Agent) -> bool:
    """Whether another client wrote the spec after the last apply or comparison. Such a client does
    not change the annotation with the commit.
    """
    daemonset, applied = agent.seen.daemonset, agent.state.generations.get(agent.key)
    if applied is None or not daemonset.uid:
        return False
    return (
        daemonset.generation != applied.generation
        and daemonset.annotations.get(names.COMMIT) == applied.commit
    )


def commit_of(agent: Agent) -> str:
    """The commit that gave its template; empty for a template that no commit has, and for a
    copy.
    """
    if changed_since(agent) or is_copy(agent) or is_foreign(agent):
        return ""
    return agent.seen.daemonset.annotations.get(names.COMMIT, "")


def rollout_commit(
    seen: Observation, state: DeployerState, rollout: StagedRollout | None
) -> CommitId:
    """The commit of the template that nodes get: of a staged rollout, or of the DaemonSet. Empty
    for an edit in the cluster, and for a copy.

    `state` may be older than the DaemonSet: a commit that it does not have yet is a new one.
    """
    daemonset, applied = seen.daemonset, state.generations.get(seen.daemonset.key)
    commit = CommitId(daemonset.annotations.get(names.COMMIT, "") if owner(seen) else "")
    if rollout is not None or applied is None or applied.commit != commit:
        return commit
    is_compared = daemonset.generation == applied.generation
    commits = state.commits.get(daemonset.key)
    if commits is None:
        return commit if is_compared else CommitId("")
    template = (rollout_tracker.current_revision(seen) or daemonset).template
    recorded = commits.get(proofs.identity(template), "")
    # a correction that the state does not have yet gives the template of the commit again
    return CommitId(recorded if is_compared or recorded == commit else "")


def is_foreign(agent: Agent) -> bool:
    """Whether the DaemonSet has a template that no commit gave it, by an edit in the cluster."""
    commits = agent.state.commits.get(agent.key)
    template = agent.seen.daemonset.template
    return commits is not None and bool(template) and proofs.identity(template) not in commits


def is_edited(agent: Agent) -> bool:
    """Whether nodes get a template of an edit in the cluster in place of that of its commit: it is
    not compared yet, or it is uncorrected drift.
    """
    is_drift = agent.key in agent.state.drift and is_foreign(agent)
    return agent.rollout is None and (changed_since(agent) or is_drift)


def requests_of(agent: Agent) -> Mapping[str, int]:
    """The requests of its pods on all nodes that need one, in thousandths of the unit."""
    each = request_costs.of_pod(agent.seen.daemonset.template.get("spec") or {})
    return {resource: amount * agent.counts.desired for resource, amount in each.items()}


def stage_of(agent: Agent) -> StageProgress | None:
    """The first stage of its rollout that is not passed; None without one."""
    return agent.rollout.current if agent.rollout else None


def nodes_done(agent: Agent) -> RolloutProgress:
    """The nodes with a healthy pod of the wanted template; the proved ones of a staged rollout."""
    if agent.rollout is not None:
        return staged_rollouts.nodes_done(agent.rollout, agent.seen.now)
    desired = agent.counts.desired
    return RolloutProgress(min(agent.health.node_counts.updated, desired), desired)


def age(agent: Agent, now: float) -> str:
    """The age of the DaemonSet in the format of kubectl."""
    created = str((agent.seen.daemonset.raw.get("metadata") or {}).get("creationTimestamp") or "")
    return timestamps.elapsed(now - (timestamps.seconds(created) or now) if created else 0)


def when(moment: datetime) -> str:
    """A moment in UTC, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
