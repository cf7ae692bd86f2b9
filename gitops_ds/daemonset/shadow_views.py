"""Observations as they would be with or without the actions of the other controller, and the pods
that ours would create or delete then.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

import msgspec

from gitops_ds.core.daemonset import Pod
from gitops_ds.core.decision import Observation
from gitops_ds.core.values import replace
from gitops_ds.daemonset import decide


class ObservedAct(msgspec.Struct, frozen=True):
    """A pod that was created, is being deleted or is gone: its last state, and the time of the
    observation; for a deleted pod also whether this put its node at risk.
    """

    pod: Pod
    at: float
    risks: bool = False


def without_owned_pods(seen: Observation) -> Observation:
    """A DaemonSet whose status is not yet written is new: all its pods were created since."""
    return replace(seen, pods=tuple(pod for pod in seen.pods if pod.owner is None))


def without_arrivals(seen: Observation, arrivals: Container[str]) -> Observation:
    """The observation without these new pods."""
    return replace(seen, pods=tuple(pod for pod in seen.pods if pod.uid not in arrivals))


def with_departures(seen: Observation, departures: Mapping[str, ObservedAct]) -> Observation:
    """The observation as if these pods had stayed."""
    back = [gone.pod for gone in departures.values()]
    others = [pod for pod in seen.pods if pod.uid not in departures]
    return replace(seen, pods=tuple(sorted(others + back, key=lambda pod: pod.name)))


def nodes_of_ended_pods(before: Observation, pods: Iterable[Pod]) -> set[str]:
    """The nodes of the pods that ended since an observation, except those that ended while they
    were being deleted.
    """
    known = {pod.uid for pod in before.pods if pod.terminating or pod.ended}
    return {pod.node for pod in pods if pod.ended and pod.uid not in known}


def nodes_to_create(seen: Observation) -> set[str]:
    """The nodes for which ours would create a pod."""
    moves, _ = decide.moves(seen)
    return {action.node for action in moves.creates} | {*moves.later}


def uids_to_delete(seen: Observation) -> set[str]:
    """The pods that ours would delete."""
    moves, _ = decide.moves(seen)
    return {action.uid for action in moves.deletes}
