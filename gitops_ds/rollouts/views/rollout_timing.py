"""The start, the pace and the estimated end of an agent's rollout. Pure."""

from __future__ import annotations

import msgspec

from gitops_ds.core.daemonset import RollingUpdate
from gitops_ds.core.decision import Observation
from gitops_ds.core.health import Health, HealthState
from gitops_ds.daemonset import decide
from gitops_ds.rollouts.decisions import staged_forecast
from gitops_ds.rollouts.views.staged_rollouts import StagedRollout

_RECENT = 20  # the number of latest pods by which the pace of an unstaged rollout is estimated


class RolloutTiming(msgspec.Struct, frozen=True):
    """The times of a rollout. `since` and `ends` are seconds since 1970; `ends` is None if it can't
    be estimated, and the earliest end with `at_least`. `batch` is the number of nodes that are
    updated together, 0 if unknown or without updates.
    """

    since: float
    batch: int = 0
    ends: float | None = None
    at_least: bool = False


def timing(
    seen: Observation, health: Health, rollout: StagedRollout | None
) -> RolloutTiming | None:
    """The rollout in progress, None without one; `rollout` is the one in stages."""
    if rollout is not None:
        return _staged(rollout, seen.now)
    return _unstaged(seen, health)


def _staged(rollout: StagedRollout, now: float) -> RolloutTiming:
    policy, decided = rollout.inputs.policy, rollout.stages
    left = staged_forecast.time_left(policy, decided, now)
    return RolloutTiming(
        decided.record.began,
        staged_forecast.batch(policy, decided) if left else 0,
        now + left.seconds if left else None,
        at_least=left is not None and left.at_least,
    )


def _unstaged(seen: Observation, health: Health) -> RolloutTiming | None:
    """The timing by the creation times of the pods with the present template; the pace is that of
    the last ones.
    """
    left = sum(1 for node in health.nodes if node.reason == "Outdated")
    if not left or not isinstance(seen.daemonset.strategy, RollingUpdate):
        return None
    layout = decide.layout(seen)
    made = sorted(pod.created for pod in seen.pods if layout.updated(pod))
    if not made:
        return None
    recent = made[-_RECENT:]
    took = seen.now - recent[0]
    is_moving = health.state is HealthState.PROGRESSING and took > 0
    return RolloutTiming(made[0], 0, seen.now + left * took / len(recent) if is_moving else None)
