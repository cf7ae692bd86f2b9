"""The agents of a cluster, or some of them, from one set of lists."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec

from gitops_ds.core import errors
from gitops_ds.core.cluster import BRIEF, ClusterReader, Listing, Selection
from gitops_ds.core.decision import Observation
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.health import Health
from gitops_ds.core.objects import CONTROLLER_REVISION, DAEMONSET, NODE, POD, Key, Resource
from gitops_ds.core.values import replace
from gitops_ds.daemonset import cache, claims, competing_controller
from gitops_ds.rollouts.state import daemonset_statements, rollout_ledger
from gitops_ds.rollouts.state.rollout_ledger import StoredLedger
from gitops_ds.status import agent_healths, agents, recorded_healths
from gitops_ds.status.agents import Agent

_SELECTORS = 8  # lists by the selector of a DaemonSet; for more, one list for each namespace


class AgentScope(msgspec.Struct, frozen=True):
    """The agents of a namespace (empty: all) with one of these names (none: every name).

    With `for_table` only the fields of a table are needed: those of a healthy agent at rest are
    what its service recorded, so its pods are not listed, and no nodes if all agents are such.
    """

    names: tuple[str, ...] = ()
    namespace: str = ""
    for_table: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether every agent is in it."""
        return not (self.names or self.namespace)


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
    content = cache.Cache()
    ledger = await _ledger(cluster, state_namespace)
    if ledger is not None:
        content.attested = ledger.attested
    for kind in cache.WATCHED:
        content.replace(kind, (), "")
    kinds = DAEMONSET, CONTROLLER_REVISION
    unseen = await _fill(content, cluster, kinds if scope.for_table else (NODE, *kinds))
    chosen = _inside(scope, _observed(content, ledger, now))
    recorded: Mapping[Key, Health] = {}
    if scope.for_table:
        recorded = await recorded_healths.read(cluster, state_namespace, chosen)
    rest = [one for one in chosen if one.daemonset.key not in recorded]
    if scope.for_table and rest:
        unseen = await _fill(content, cluster, (NODE,))
    if unseen:
        say(
            f"{unseen}: nodes without a pod are not shown, and health is that of the DaemonSet's "
            "status (docs/guides/permissions.md#read-access has the ClusterRole)"
        )
    is_whole = scope.is_whole and not recorded
    selections = (BRIEF,) if is_whole else _pod_lists(rest) if rest else ()
    await _fill_pods(content, cluster, selections)
    seen = _observed(content, ledger, now)
    if selections != (BRIEF,):  # of the others not all pods are known
        seen = _inside(scope, seen)
    owners = await agents.read_owners(cluster, state_namespace, seen, now)
    if ledger is not None:  # a service announces each DaemonSet that it applies
        seen = [
            ledger.as_announced(one)
            if not ledger.announces(one.daemonset) and agents.owner(one) in owners.sources
            else one
            for one in seen
        ]
    applied = [one for one in seen if owners.applied(one)]
    judged = [one for one in seen if one.daemonset.key not in recorded]
    healths = await agent_healths.read(
        cluster, judged, applied, has_nodes=not unseen, others=content
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
        for one in _inside(scope, seen)
    )


def _inside(scope: AgentScope, seen: Sequence[Observation]) -> list[Observation]:
    """Those in the scope. Raises NoMatch for a name without an agent."""
    keys = [one.daemonset.key for one in seen]
    chosen = agents.select_keys(keys, scope.names, scope.namespace)
    return [one for one in seen if one.daemonset.key in chosen]


async def _fill(content: cache.Cache, cluster: ClusterReader, kinds: Sequence[Resource]) -> str:
    """Lists these kinds into a cache. The message of a server that forbids the list of nodes, else
    empty. Raises ClusterError.
    """
    unseen = ""
    lists: list[Listing | BaseException] = await asyncio.gather(
        *(cluster.list(resource, BRIEF) for resource in kinds), return_exceptions=True
    )
    for resource, listing in zip(kinds, lists, strict=True):
        if isinstance(listing, errors.Forbidden) and resource == NODE:
            unseen = listing.server_message
        elif isinstance(listing, BaseException):
            raise listing
        else:
            content.replace(resource, listing.items, listing.version)
    return unseen


async def _fill_pods(
    content: cache.Cache, cluster: ClusterReader, selections: Sequence[Selection]
) -> None:
    lists = await asyncio.gather(*(cluster.list(POD, which) for which in selections))
    content.replace(POD, (body for listing in lists for body in listing.items), "")


def _observed(content: cache.Cache, ledger: StoredLedger | None, now: float) -> list[Observation]:
    """The observations with what deployers announced, without probes."""
    seen = (one for key in content.keys if (one := content.observe(key, now)) is not None)
    return [
        ledger.as_announced(one) if ledger is not None and ledger.announces(one.daemonset) else one
        for one in seen
        if not competing_controller.is_probe(one.daemonset.raw)
    ]


def _pod_lists(chosen: Sequence[Observation]) -> tuple[Selection, ...]:
    """The lists with the pods that decide about these DaemonSets. A staged rollout may wait for
    other DaemonSets and for workloads: those are all pods.
    """
    daemonsets = [one.daemonset for one in chosen]
    if any(daemonset_statements.has_target(daemonset.annotations) for daemonset in daemonsets):
        return (BRIEF,)
    if len(daemonsets) <= _SELECTORS:
        found = (replace(claims.selection(one), brief=True) for one in daemonsets)
    else:
        found = (Selection(one.key.namespace, brief=True) for one in daemonsets)
    return tuple(dict.fromkeys(found))


async def _ledger(cluster: ClusterReader, namespace: str) -> StoredLedger | None:
    try:
        return await rollout_ledger.stored(cluster, namespace)
    except (errors.Forbidden, errors.Invalid, errors.BadRequest):
        return None
