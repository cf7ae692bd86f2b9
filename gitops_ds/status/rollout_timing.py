"""The start, the pace and the estimated end of an agent's rollout. Pure."""

from __future__ import annotations

import msgspec

from gitops_ds.core.daemonset import RollingUpdate
from gitops_ds.core.health import HealthState
from gitops_ds.daemonset import decide
from gitops_ds.rollouts.decisions import staged_forecast
from gitops_ds.rollouts.views.staged_rollouts import StagedRollout
from gitops_ds.status.agents import Agent

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


def timing(agent: Agent) -> RolloutTiming | None:
    """The rollout in progress, None without one."""
    if agent.rollout is not None:
        return _staged(agent.rollout, agent.seen.now)
    return _unstaged(agent)


def _staged(rollout: StagedRollout, now: float) -> RolloutTiming:
    policy, decided = rollout.inputs.policy, rollout.stages
    left = staged_forecast.time_left(policy, decided, now)
    return RolloutTiming(
        decided.record.began,
        staged_forecast.batch(policy, decided) if left else 0,
        now + left.seconds if left else None,
        at_least=left is not None and left.at_least,
    )


def _unstaged(agent: Agent) -> RolloutTiming | None:
    """The timing by the creation times of the pods with the present template; the pace is that of
    the last ones.
    """
    left = sum(1 for one in agent.health.nodes if one.reason == "Outdated")
    if not left or not isinstance(agent.seen.daemonset.strategy, RollingUpdate):
        return None
    layout = decide.layout(agent.seen)
    made = sorted(pod.created for pod in agent.seen.pods if layout.updated(pod))
    if not made:
        return None
    recent = made[-_RECENT:]
    took = agent.seen.now - recent[0]
    is_moving = agent.health.state is HealthState.PROGRESSING and took > 0
    return RolloutTiming(
        made[0], 0, agent.seen.now + left * took / len(recent) if is_moving else None
    )
