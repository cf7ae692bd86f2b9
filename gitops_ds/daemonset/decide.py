"""One reconciliation: missing and surplus pods first, then the rolling update. The controller is
this pure function of an observation.
"""

from __future__ import annotations

from collections.abc import Sequence

from gitops_ds.core.daemonset import Pod
from gitops_ds.core.decision import Action, Decision, Observation
from gitops_ds.core.values import replace
from gitops_ds.daemonset import (
    claims,
    competing_controller,
    history,
    node_pods,
    one_pod_per_node,
    rolling_update,
)
from gitops_ds.daemonset.claims import Claim
from gitops_ds.daemonset.history import RevisionHistory
from gitops_ds.daemonset.memory import LAPSES_AFTER
from gitops_ds.daemonset.node_pods import NodePodLayout
from gitops_ds.daemonset.pod_changes import BURST, PodChanges

SELECTING_ALL = "This daemon set is selecting all pods. A non-empty selector is required."


def decide(seen: Observation) -> Decision:
    """The decision for one DaemonSet, a deterministic function of the observation.

    A DaemonSet that is being deleted is ignored: the garbage collector deletes or orphans its pods.
    So is the probe for other controllers. A decision with adoptions has no other actions: the next
    one follows when the cluster shows the adoptions (upstream ends the sync on a failed adoption:
    controller_ref_manager.go, ClaimPods).
    """
    daemonset = seen.daemonset
    if daemonset.selector is None:
        return Decision(complaint=SELECTING_ALL)
    if daemonset.deleting or competing_controller.is_probe(daemonset.raw):
        return Decision()
    claim = claims.claim(seen)
    if claim.adopts:
        return Decision(steps=(claim.actions,))
    revisions = history.construct(daemonset, claim, seen.namesake)
    layout = _laid_out(seen, claim, revisions)
    placed = one_pod_per_node.changes(layout)
    changes = placed or rolling_update.changes(layout)
    pruned = history.prune(daemonset, revisions.old, claim.pods)
    steps: tuple[Sequence[Action], ...] = (
        claim.actions,
        revisions.actions,
        changes.actions(seen.unshown),
        pruned,
    )
    return Decision(
        steps=tuple(tuple(step) for step in steps if step),
        status=layout.status_update(),
        wake_after=_wake_after(layout, placed.wake_at, _shown_at(seen, changes)),
        backoffs=placed.backoffs,
        unplaced={**placed.unplaced, **changes.unplaced},
    )


def moves(seen: Observation) -> tuple[PodChanges, RevisionHistory]:
    """All pods that a decision would create or delete, without a limit, and the resulting history;
    for previews.
    """
    layout, revisions = _settled(seen)
    return one_pod_per_node.changes(layout) or rolling_update.changes(layout), revisions


def layout(seen: Observation) -> NodePodLayout:
    """The pods by node as in `decide`, for read-only use."""
    return _settled(seen)[0]


def _settled(seen: Observation) -> tuple[NodePodLayout, RevisionHistory]:
    claim = claims.claim(seen)
    revisions = history.construct(seen.daemonset, claim, seen.namesake)
    return _laid_out(seen, claim, revisions), revisions


def _laid_out(seen: Observation, claim: Claim, revisions: RevisionHistory) -> NodePodLayout:
    return node_pods.layout_of(
        seen,
        _relabelled(claim.pods, revisions),
        revisions.hash,
        frozenset(map(history.hash_in, revisions.old)),
    )


def _relabelled(all_pods: Sequence[Pod], revisions: RevisionHistory) -> Sequence[Pod]:
    """The pods after the history's step: those of a duplicate revision have the hash of the kept
    one.
    """
    if not revisions.relabelled:
        return all_pods
    return [
        replace(pod, hash=revisions.hash) if pod.hash in revisions.relabelled else pod
        for pod in all_pods
    ]


def _shown_at(seen: Observation, moves: PodChanges) -> float | None:
    """When creates that wait for the watch continue anyway; None if no create waits."""
    waits = seen.unshown and len(moves.creates) + len(moves.later) > BURST - seen.unshown
    return seen.now + LAPSES_AFTER if waits else None


def _wake_after(layout: NodePodLayout, *further: float | None) -> float | None:
    times = [time for time in (*further, layout.next_available()) if time is not None]
    return min(times) - layout.seen.now if times else None
