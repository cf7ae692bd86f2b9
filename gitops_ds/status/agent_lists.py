"""The agents of a cluster, or some of them, from one set of lists."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence, Set

import msgspec

from gitops_ds.core import errors
from gitops_ds.core.cluster import BRIEF, ClusterReader, Listing, Selection
from gitops_ds.core.daemonset import DaemonSet
from gitops_ds.core.decision import Observation
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.health import Health
from gitops_ds.core.objects import CONTROLLER_REVISION, DAEMONSET, NODE, POD, Key
from gitops_ds.core.rollouts.rollout_policy import RolloutPolicy
from gitops_ds.core.values import replace
from gitops_ds.daemonset import cache, claims, competing_controller
from gitops_ds.rollouts.decisions import stage_inputs
from gitops_ds.rollouts.state import daemonset_statements, rollout_ledger, target_revisions
from gitops_ds.rollouts.state.rollout_ledger import StoredLedger
from gitops_ds.status import agent_healths, agents, recorded_healths
from gitops_ds.status.agents import Agent, Owners

MANY_PODS = 5_000  # their list takes a second
_SELECTORS = 8  # lists by the selector of a DaemonSet; for more, one list for each namespace


class AgentScope(msgspec.Struct, frozen=True):
    """The agents of a namespace (empty: all) with one of these names (none: every name).

    With `recorded_from` only the fields of a table are needed: from that number of pods on, those
    of an agent at rest are what its service recorded, so its pods are not listed, and no nodes if
    all agents are such.
    """

    names: tuple[str, ...] = ()
    namespace: str = ""
    recorded_from: int | None = None

    def has(self, key: Key) -> bool:
        """Whether an agent is in the scope."""
        return agents.is_selected(key, self.names, self.namespace)


EVERY = AgentScope()


async def list_agents(
    cluster: ClusterReader,
    state_namespace: str,
    now: float,
    say: Callable[[str], None] = lambda _: None,
    scope: AgentScope = EVERY,
) -> tuple[Agent, ...]:
    """The agents in the scope, from lists of DaemonSets, revisions, nodes and pods, and the states
    of their owners. Raises ClusterError, and NoMatch for a name without an agent.

    Without permission to list nodes, as with the ClusterRole view, the health is derived from the
    status of the DaemonSet, and `say` receives a warning.
    """
    lists = await _begun(cluster, state_namespace, now)
    seen = lists.observed()
    chosen, recorded = _inside(scope, seen), dict[Key, Health]()
    # A staged rollout may wait for others; else not all pods of the others are known.
    considered = seen if any(_is_staged(one.daemonset) for one in chosen) else chosen
    owners = await agents.read_owners(cluster, state_namespace, considered, now)
    pods = sum(one.daemonset.counts.desired for one in chosen if one.daemonset.counts)
    if scope.recorded_from is not None and pods >= scope.recorded_from:
        recorded |= await recorded_healths.read(cluster, state_namespace, owners.sources, chosen)
    rest = [one.daemonset for one in chosen if one.daemonset.key not in recorded]
    is_whole = bool(rest) and not (scope.names or scope.namespace or recorded)
    every = [one.daemonset for one in seen]
    has_nodes = await lists.fill_nodes(rest, (BRIEF,) if is_whole else pod_lists(rest, every), say)
    keys = {one.daemonset.key for one in considered}
    seen = lists.counting(keys, owners)
    applied = [one for one in seen if owners.applied(one)]
    shown = _inside(scope, seen)
    judged = [one for one in shown if one.daemonset.key not in recorded]
    healths = await agent_healths.read(
        cluster, judged, applied, has_nodes=has_nodes, others=lists.content
    )
    health_of = {**healths.healths, **recorded}
    return tuple(
        Agent(
            one,
            health_of[one.daemonset.key],
            owners.states.get(agents.owner(one), DeployerState()),
            owners.sources.get(agents.owner(one)),
            rollout=healths.rollouts.get(one.daemonset.key),
        )
        for one in shown
    )


class _Lists(msgspec.Struct, frozen=True):
    """The lists of one cluster at `now`, in seconds since 1970: DaemonSets and revisions, and from
    `fill_nodes` on nodes and pods. `ledger` is what deployers announced, None if it is unreadable.
    """

    cluster: ClusterReader
    ledger: StoredLedger | None
    content: cache.Cache
    now: float

    def observed(self) -> list[Observation]:
        """The observations with what deployers announced, without probes."""
        content, ledger = self.content, self.ledger
        seen = (one for key in content.keys if (one := content.observe(key, self.now)) is not None)
        return [
            ledger.as_announced(one)
            if ledger is not None and ledger.announces(one.daemonset)
            else one
            for one in seen
            if not competing_controller.is_probe(one.daemonset.raw)
        ]

    def counting(self, keys: Set[Key], owners: Owners) -> list[Observation]:
        """The observations with what counts: a service announces each DaemonSet that it applies."""
        ledger = self.ledger
        return [
            ledger.as_announced(one)
            if ledger is not None
            and not ledger.announces(one.daemonset)
            and agents.owner(one) in owners.sources
            else one
            for one in self.observed()
            if one.daemonset.key in keys
        ]

    async def fill_nodes(
        self,
        daemonsets: Collection[DaemonSet],
        selections: Sequence[Selection],
        say: Callable[[str], None],
    ) -> bool:
        """Lists nodes and the selected pods, and all pods if others may have the place of a pod of
        these DaemonSets. False without permission to list nodes; `say` receives the warning. Raises
        ClusterError.
        """
        if unseen := await self._fill(selections):
            say(
                f"{unseen}: nodes without a pod are not shown, and health is that of the "
                "DaemonSet's status (docs/guides/permissions.md#read-access has the ClusterRole)"
            )
        keys = {daemonset.key for daemonset in daemonsets}
        if selections != (BRIEF,) and any(
            needs_others(one) for one in self.observed() if one.daemonset.key in keys
        ):
            await self._fill((BRIEF,))
        return not unseen

    async def _fill(self, selections: Sequence[Selection]) -> str:
        """Lists nodes, and the pods of these lists; neither without lists. The message of a server
        that forbids the list of nodes, else empty. Raises ClusterError.
        """
        if not selections:
            return ""
        cluster, content = self.cluster, self.content
        nodes, pods = await asyncio.gather(
            _nodes(cluster), asyncio.gather(*(cluster.list(POD, which) for which in selections))
        )
        content.replace(POD, (body for listing in pods for body in listing.items), "")
        if isinstance(nodes, errors.Forbidden):
            return nodes.server_message
        content.replace(NODE, nodes.items, nodes.version)
        return ""


async def _begun(cluster: ClusterReader, state_namespace: str, now: float) -> _Lists:
    """The lists of DaemonSets and revisions, without nodes and pods. Raises ClusterError."""
    content = cache.Cache()
    ledger = await _ledger(cluster, state_namespace)
    if ledger is not None:
        content.attested = ledger.attested
    kinds = DAEMONSET, CONTROLLER_REVISION
    lists = await asyncio.gather(*(cluster.list(resource) for resource in kinds))
    for resource, listing in zip(kinds, lists, strict=True):
        content.replace(resource, listing.items, listing.version)
    for resource in (NODE, POD):
        content.replace(resource, (), "")
    return _Lists(cluster, ledger, content, now)


def _inside(scope: AgentScope, seen: Sequence[Observation]) -> list[Observation]:
    """Those in the scope. Raises NoMatch for a name without an agent."""
    keys = [one.daemonset.key for one in seen]
    chosen = agents.select_keys(keys, scope.names, scope.namespace)
    return [one for one in seen if one.daemonset.key in chosen]


async def _nodes(cluster: ClusterReader) -> Listing | errors.Forbidden:
    try:
        return await cluster.list(NODE, BRIEF)
    except errors.Forbidden as error:
        return error


def _is_staged(daemonset: DaemonSet) -> bool:
    """Whether a staged rollout is in progress."""
    return daemonset_statements.has_target(daemonset.annotations)


def pod_lists(chosen: Iterable[DaemonSet], every: Collection[DaemonSet]) -> tuple[Selection, ...]:
    """The lists with the pods that decide about the chosen DaemonSets: theirs, those of agents that
    a staged rollout waits for (`after`), and all if it waits for idle nodes. They have what counts
    of each DaemonSet.
    """
    daemonsets = {daemonset.key: daemonset for daemonset in chosen}
    for policy in filter(None, map(_policy, tuple(daemonsets.values()))):
        if any(stage.is_idle for stage in policy.stages):
            return (BRIEF,)
        before = {key.agent for key in policy.after}
        some = [daemonset for daemonset in every if stage_inputs.agent_of(daemonset) in before]
        daemonsets |= {daemonset.key: daemonset for daemonset in some}
    if len(daemonsets) <= _SELECTORS:
        found = (replace(claims.selection(one), brief=True) for one in daemonsets.values())
    else:
        found = (Selection(key.namespace, brief=True) for key in daemonsets)
    return tuple(dict.fromkeys(found))


def _policy(daemonset: DaemonSet) -> RolloutPolicy | None:
    """The policy of a staged rollout in progress; None without one, and for an invalid policy."""
    with contextlib.suppress(ValueError):
        found = target_revisions.policy_of(daemonset) if _is_staged(daemonset) else None
        return found[0] if found else None
    return None


def needs_others(seen: Observation) -> bool:
    """Whether pods of other owners may have the place of a pod of its staged rollout."""
    target = target_revisions.target_of(seen.daemonset, seen.revisions)
    return target is not None and bool(stage_inputs.unplaced(seen, target))


async def _ledger(cluster: ClusterReader, namespace: str) -> StoredLedger | None:
    try:
        return await rollout_ledger.stored(cluster, namespace)
    except (errors.Forbidden, errors.Invalid, errors.BadRequest):
        return None
