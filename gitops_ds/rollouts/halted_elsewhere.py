"""Halts that affect other rollouts (`onFailure.scope: cluster`): rollouts of the same repository
take no further node until the halted one is reverted, replaced or released.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gitops_ds.apimachinery.rollouts import target_revisions
from gitops_ds.model import names
from gitops_ds.model.daemonset import DaemonSet
from gitops_ds.model.live import Revision

Rollout = tuple[DaemonSet, Sequence[Revision]]


def reason(daemonset: DaemonSet, others: Iterable[Rollout]) -> str:
    """Why another rollout halts the rollout of a DaemonSet; empty if none does."""
    for other, revisions in others:
        if other.uid == daemonset.uid or _repository(other) != _repository(daemonset):
            continue
        if (message := _halt(other, revisions)) is not None:
            return f"the rollout of {other.key} is halted (onFailure.scope: cluster): {message}"
    return ""


def _repository(daemonset: DaemonSet) -> str:
    return daemonset.annotations.get(names.REPOSITORY, "")


def _halt(daemonset: DaemonSet, revisions: Sequence[Revision]) -> str | None:
    """The message of a halt that affects others, None without one."""
    if not daemonset.annotations.get(names.TARGET):
        return None
    try:
        policy_and_pools = target_revisions.policy_of(daemonset)
    except ValueError:
        return None
    target = target_revisions.target_of(daemonset, revisions)
    if (
        policy_and_pools is None
        or target is None
        or policy_and_pools[0].on_failure.scope != "cluster"
    ):
        return None
    halt = target_revisions.record_of(revisions, target).halt
    return None if halt is None else halt.message
