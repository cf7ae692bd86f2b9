"""The panel of a staged rollout on the page of its agent: stages with bars, hold or halt, parked
nodes. Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import msgspec

from gitops_ds.core.redaction import texts
from gitops_ds.core.rollouts.staged_rollout import NodeProgress, NodeStep, StageProgress, StageState
from gitops_ds.rollouts.views.rollout_timing import RolloutTiming
from gitops_ds.rollouts.views.staged_rollouts import StagedRollout

PARKED = 20  # parked nodes that the panel lists

_FILLS = {
    NodeStep.PROVED: "good",
    NodeStep.SOAKING: "way",
    NodeStep.STARTING: "way",
    NodeStep.REPLACING: "way",
    NodeStep.SET_ASIDE: "warn",
    NodeStep.PARKED: "warn",
    NodeStep.FAILED: "bad",
    NodeStep.WAITING: "none",
}
_ORDER = ("good", "way", "warn", "bad")
_TONES = {
    StageState.PASSED: "h-healthy",
    StageState.OPEN: "h-progressing",
    StageState.HELD: "h-degraded",
    StageState.HALTED: "h-failed",
    StageState.PENDING: "",
}


class StageRow(msgspec.Struct, frozen=True):
    """A stage: `tone` is the class of its badge, `since` when it opened, passed or was halted, and
    `until` when its wait ends, in seconds since 1970 or None; `approved` are its approvers.
    """

    name: str
    state: str
    tone: str
    proved: int
    nodes: int
    bar: tuple[tuple[str, int], ...]
    bar_words: str
    waits: str
    approved: str
    since: float | None
    until: float | None


class RolloutPanel(msgspec.Struct, frozen=True):
    """A rollout; `hold` and `halt` are sentences, empty if they do not apply."""

    commit: str
    timing: RolloutTiming | None
    at_risk: int
    limit: int
    stages: tuple[StageRow, ...]
    hold: str
    halt: str
    evidence: tuple[str, ...]
    parked: tuple[NodeProgress, ...]
    more: int

    @property
    def words(self) -> str:
        """The rollout in a few words, for screen readers."""
        return ", ".join(f"{stage.name} {stage.proved} of {stage.nodes}" for stage in self.stages)


def panel(rollout: StagedRollout, timing: RolloutTiming | None) -> RolloutPanel:
    """The panel of a rollout."""
    steps: dict[str, Counter[NodeStep]] = defaultdict(Counter)
    for node in rollout.stages.nodes:
        steps[node.stage][node.step] += 1
    halt, hold, parked = rollout.halt, rollout.stages.hold, rollout.parked
    return RolloutPanel(
        rollout.commit,
        timing,
        rollout.stages.at_risk,
        rollout.stages.cap,
        tuple(_row(rollout, stage, steps[stage.name]) for stage in rollout.stages.stages),
        texts.words(hold.text) if hold is not None and halt is None else "",
        texts.words(f"stage {halt.stage}: {halt.message}") if halt is not None else "",
        tuple(texts.words(line) for line in halt.gate.lines) if halt and halt.gate else (),
        parked[:PARKED],
        max(0, len(parked) - PARKED),
    )


def _row(rollout: StagedRollout, stage: StageProgress, steps: Counter[NodeStep]) -> StageRow:
    waits = rollout.waits_for(stage)
    fills = Counter[str]()
    for step, count in steps.items():
        fills[_FILLS[step]] += count
    return StageRow(
        stage.label,
        stage.state.value,
        _TONES[stage.state],
        stage.proved,
        len(stage.nodes),
        tuple((fill, fills[fill]) for fill in _ORDER),
        ", ".join(f"{count} {step}" for step, count in sorted(steps.items())) or "no node",
        texts.words(waits.reason) if waits else "",
        texts.words("; ".join(approval.text for approval in rollout.approvals_of(stage))),
        _since(rollout, stage),
        waits.until if waits else None,
    )


def _since(rollout: StagedRollout, stage: StageProgress) -> float | None:
    """When the stage opened, passed or was halted; None for a pending one."""
    record = rollout.stages.record
    match stage.state:
        case StageState.PENDING:
            return None
        case StageState.PASSED:
            return record.passed.get(stage.name)
        case StageState.HALTED if record.halt is not None:
            return record.halt.at
        case _:
            return max(record.passed.values(), default=record.began)
