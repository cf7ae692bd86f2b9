"""The nodes on which a change of a DaemonSet adds, removes or restarts a pod: the result of
`decide` for the live pods.

A node with a new taint or without a former label may keep its pod, but gets no other one: the
rollout removes it. Eligibility, which is a function of nodes, does not include that, so pods are
required.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from gitops_ds.core import startup_taints
from gitops_ds.core.daemonset import DaemonSet, Owner, Phase, Pod, RollingUpdate, Share
from gitops_ds.core.decision import Adopt, CreateRevision, Observation
from gitops_ds.core.live import JoinTime, Node, NodeImpact
from gitops_ds.core.objects import DAEMONSET, Body
from gitops_ds.core.values import replace
from gitops_ds.daemonset import claims, decide
from gitops_ds.kube.apimachinery import daemonsets, revisions

_EVERY_NODE = 10**9
_MOST_TURNS = 12
_LONG_AGO = 0.0


def preview(seen: Observation) -> NodeImpact:
    """The effect after the rollout, if every new pod becomes ready; each group of nodes is sorted.

    `seen` has the future DaemonSet and the present nodes, pods and revisions. All nodes are updated
    at once: a budget affects the time of an update, not its result.
    """
    strategy = seen.daemonset.strategy
    if isinstance(strategy, RollingUpdate):
        whole = RollingUpdate(_whole(strategy.max_unavailable), _whole(strategy.max_surge))
        seen = replace(seen, daemonset=replace(seen.daemonset, strategy=whole, min_ready_seconds=0))
    seen = _adopted(
        replace(seen, pods=tuple(map(_well, seen.pods)), rooms=None, backoffs={}, unshown=0)
    )
    # The pods of a deleted node end with or without the change.
    existing = {node.name for node in seen.nodes}
    before = {
        node: uids for node, uids in _by_node(claims.claim(seen).pods).items() if node in existing
    }
    for _ in range(_MOST_TURNS):
        after = _turn(seen)
        if after is seen:
            break
        seen = after
    there = _by_node(claims.claim(seen).pods)
    return NodeImpact(
        gained=tuple(sorted(there.keys() - before.keys())),
        lost=tuple(sorted(before.keys() - there.keys())),
        restarted=tuple(
            sorted(node for node in before.keys() & there.keys() if not before[node] & there[node])
        ),
    )


def _whole(share: Share) -> Share:
    """A budget for all nodes at once. A number, because a percentage of zero desired nodes is
    zero.
    """
    if not share.amount:
        return share
    return Share(100, percent=True) if share.percent else Share(_EVERY_NODE)


def of_change(seen: Observation, new: Body) -> NodeImpact:
    """As `preview`, for a change of the observed DaemonSet to `new`, as the API server would store
    it.
    """
    live, desired = seen.daemonset, daemonsets.daemonset_of(new)
    changed = not revisions.same_template(live.template, desired.template)
    after = replace(
        desired,
        uid=live.uid,
        template_generation="" if changed else live.template_generation,
        generation=live.generation + changed,
        observed_generation=live.observed_generation,
        collision_count=live.collision_count,
    )
    impact = preview(replace(seen, daemonset=after))
    if startup_taints.is_required(after.annotations):
        return replace(impact, joined=_join_time(seen))
    return impact


def _turn(seen: Observation) -> Observation:
    """The observation after all actions of one decision; the same observation if it has no
    actions.
    """
    moves, past = decide.moves(seen)
    if not moves:
        return seen
    bodies = [action.body for action in past.actions if isinstance(action, CreateRevision)]
    new_revisions = [
        revisions.revision_of({**body, "metadata": {**body["metadata"], "uid": "new"}})
        for body in bodies
    ]
    gone = {action.uid for action in moves.deletes}
    new = [
        _made(seen, node, past.hash)
        for node in (*(action.node for action in moves.creates), *moves.later)
    ]
    pods = [pod for pod in seen.pods if pod.uid not in gone]
    return replace(
        seen,
        pods=(*pods, *new),
        revisions=(*seen.revisions, *(one for one in new_revisions if one is not None)),
    )


def _made(seen: Observation, node: str, hash: str) -> Pod:
    daemonset = seen.daemonset
    labels = (daemonset.template.get("metadata") or {}).get("labels") or {}
    return Pod(
        namespace=daemonset.key.namespace, name=f"new-{node}", uid=f"new-{node}", node=node,
        bound=True, labels=labels, owner=_owner(daemonset), phase=Phase.RUNNING,
        created=seen.now, ready=True, ready_since=_LONG_AGO, hash=hash,
    )  # fmt: skip


def _owner(daemonset: DaemonSet) -> Owner:
    return Owner(DAEMONSET.kind, daemonset.key.name, daemonset.uid)


def _adopted(seen: Observation) -> Observation:
    """The observation after all adoptions."""
    uids = {action.uid for action in claims.claim(seen).actions if isinstance(action, Adopt)}
    if not uids:
        return seen
    owner = _owner(seen.daemonset)
    pods = tuple(replace(pod, owner=owner) if pod.uid in uids else pod for pod in seen.pods)
    return replace(
        seen, pods=pods, revisions=tuple(one for one in seen.revisions if one.uid not in uids)
    )


def _well(pod: Pod) -> Pod:
    """The pod as a healthy one: failures are replaced with or without the change."""
    return replace(
        pod, bound=True, phase=Phase.RUNNING, terminating=False, ready=True, ready_since=_LONG_AGO
    )


def _by_node(pods: Iterable[Pod]) -> dict[str, set[str]]:
    uids: dict[str, set[str]] = {}
    for pod in pods:
        if pod.node:
            uids.setdefault(pod.node, set()).add(pod.uid)
    return uids


# Seconds after its node within which the first pod of a node is created.
_FIRST_WITHIN = 60.0


def _join_time(seen: Observation) -> JoinTime | None:
    """The time of the nodes whose first pod runs and was never restarted; None without any."""
    nodes = {node.name: node for node in seen.nodes}
    times = [
        pod.ready_since + seen.daemonset.min_ready_seconds - nodes[pod.node].created
        for pod in seen.pods
        if pod.node in nodes and pod.ready_since is not None and _is_first(pod, nodes[pod.node])
    ]
    return JoinTime(median(times), len(times)) if times else None


def _is_first(pod: Pod, node: Node) -> bool:
    is_of_join = 0.0 <= pod.created - node.created <= _FIRST_WITHIN
    return pod.ready and not pod.restarts and bool(node.created) and is_of_join
