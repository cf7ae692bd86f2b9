"""The estimated remaining time of a staged rollout. Pure, and cheap enough for every read of a
status.

It counts batches, soaks and the cap on nodes at risk, as `staged_forecast` does, without
simulating single nodes. The limits of zones and registries are ignored.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from gitops_ds.core.rollouts.rollout_policy import RolloutPolicy, Stage
from gitops_ds.core.rollouts.staged_rollout import (
    MOVING,
    NodeProgress,
    NodeStep,
    StageProgress,
    StagesDecision,
    StageState,
)
from gitops_ds.daemonset.rollout_forecast import USUAL, RolloutPace
from gitops_ds.rollouts.decisions.node_selection import batch_at

_TOUCHED = (*MOVING, NodeStep.PROVED, NodeStep.FAILED, NodeStep.SET_ASIDE)


class TimeLeft(msgspec.Struct, frozen=True):
    """Seconds until every node is proved. `at_least`: a remaining stage also waits for people,
    windows, metrics or idle nodes.
    """

    seconds: float
    at_least: bool = False


def time_left(
    policy: RolloutPolicy, decided: StagesDecision, now: float, pace: RolloutPace = USUAL
) -> TimeLeft | None:
    """The estimate for a decision; None after a failure, and on a hold without a known end."""
    hold = decided.hold
    if decided.halt is not None or (hold is not None and hold.until is None):
        return None
    if any(one.step is NodeStep.FAILED for one in decided.nodes):
        return None
    clock = _Clock(max(now, hold.until or now) if hold else now, decided.cap, pace)
    eligible, at_least = len(decided.nodes), False
    for stage, progress in zip(policy.stages, decided.stages, strict=True):
        if progress.state is StageState.PASSED:
            continue
        nodes = [one for one in decided.nodes if one.stage == progress.name]
        if progress.state is StageState.HELD and (stage.approval is not None or stage.is_idle):
            return None  # `until` of the hold is its deadline
        at_least = at_least or _waits(stage, progress)
        clock.play(stage, nodes, eligible)
    return TimeLeft(clock.now - now, at_least)


def batch(policy: RolloutPolicy, decided: StagesDecision) -> int:
    """The size of the current batch; 0 if every stage is passed."""
    for stage, progress in zip(policy.stages, decided.stages, strict=True):
        if progress.state is not StageState.PASSED:
            steps = Counter(one.step for one in decided.nodes if one.stage == progress.name)
            running = sum(steps[step] for step in (NodeStep.SOAKING, NodeStep.PROVED))
            size = batch_at(stage.pace, running, len(decided.nodes))[1]
            return min(size, decided.cap, max(1, len(progress.nodes)))
    return 0


def _waits(stage: Stage, progress: StageProgress) -> bool:
    """Whether the stage waits for more than time."""
    is_open = progress.state is StageState.OPEN
    before = (stage.approval is not None or bool(stage.windows)) and not is_open
    return before or stage.is_idle or bool(stage.one_at_a_time)


@dataclass(slots=True)
class _Clock:
    """The time of the estimate. `ends` is a heap of the times at which nodes of `at_risk` are
    proved, with their numbers.
    """

    now: float
    cap: int
    pace: RolloutPace
    at_risk: int = 0
    ends: list[tuple[float, int]] = field(default_factory=list)

    def play(self, stage: Stage, nodes: Sequence[NodeProgress], eligible: int) -> None:
        """Advances to the end of a stage."""
        steps = Counter(one.step for one in nodes)
        delay = self.pace.start + self.pace.stop
        for one in nodes:
            if one.step is NodeStep.SOAKING:
                self._risk(one.until or self.now + stage.soak, 1)
        moving = steps[NodeStep.REPLACING] + steps[NodeStep.STARTING]
        if moving:
            self._risk(self.now + delay + stage.soak, moving)
            self.now += delay
        touched = sum(steps[step] for step in _TOUCHED)
        waiting = steps[NodeStep.WAITING]
        while waiting:
            before, size = batch_at(stage.pace, touched, eligible)
            taken = min(before + size - touched, self._room(), waiting)
            touched, waiting = touched + taken, waiting - taken
            self._risk(self.now + delay + stage.soak, taken)
            is_whole = touched == before + size
            self.now += max(delay, stage.pace.every) if is_whole and waiting else delay
        while self.ends:
            self._prove()

    def _risk(self, until: float, count: int) -> None:
        heapq.heappush(self.ends, (until, count))
        self.at_risk += count

    def _prove(self) -> None:
        """Advances until the next nodes are proved."""
        until, count = heapq.heappop(self.ends)
        self.now, self.at_risk = max(self.now, until), self.at_risk - count

    def _room(self) -> int:
        """How many nodes may be taken, after the time until at least one may."""
        while self.ends and (self.ends[0][0] <= self.now or self.at_risk >= self.cap):
            self._prove()
        return max(1, self.cap - self.at_risk)
