"""The staged rollout of an agent, decided from the objects of the cluster by the function that the
controller uses. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gitops_ds.apimachinery import revisions
from gitops_ds.controller.rollouts import Rollouts
from gitops_ds.daemonset import decide, stages
from gitops_ds.daemonset.node_pods import NodePodLayout
from gitops_ds.model.decision import Observation
from gitops_ds.model.objects import CommitId
from gitops_ds.model.staged_rollout import (
    Halt,
    NodeProgress,
    NodeStep,
    RolloutTarget,
    StageInputs,
    StageProgress,
    StagesDecision,
    StageState,
)

SHOWN = 4  # stages in one line; of more, the passed ones are counted


@dataclass(frozen=True, slots=True)
class StagedRollout:
    """A rollout that is under way: the DaemonSet does not have the template of the target yet."""

    inputs: StageInputs
    stages: StagesDecision

    @property
    def target(self) -> RolloutTarget:
        """The target."""
        return self.inputs.target

    @property
    def commit(self) -> CommitId:
        """The commit of the target."""
        return CommitId(self.target.commit)

    @property
    def halt(self) -> Halt | None:
        """Why it is halted, None if it is not."""
        return self.stages.halt

    @property
    def complete(self) -> bool:
        """Whether every stage is passed, and every node that can be updated is proved."""
        return self.stages.complete

    @property
    def current(self) -> StageProgress | None:
        """The first stage that is not passed."""
        return next((one for one in self.stages.stages if one.state is not StageState.PASSED), None)

    @property
    def parked(self) -> tuple[NodeProgress, ...]:
        """The nodes that are not updated, and not waited for: broken before, or by their own fault."""
        apart = (NodeStep.PARKED, NodeStep.SET_ASIDE)
        return tuple(one for one in self.stages.nodes if one.step in apart)

    @property
    def progress(self) -> str:
        """`canary 2/2, rest 3/8`: the proved nodes of each stage."""
        return ", ".join(self._parts())

    @property
    def state(self) -> str:
        """The stage in one word, for tables: `canary`, `rest (held)`, `canary (halted)`, `done`."""
        current = self.current
        if self.halt is not None:
            return f"{self.halt.stage} (halted)"
        if current is None:
            return "done" if self.complete else self.stages.stages[-1].name
        return f"{current.name} (held)" if self.stages.hold else current.name

    def number(self, seen: Observation) -> int:
        """The number that the revision gets with the template: the next one."""
        own = (
            one.number
            for one in seen.revisions
            if (owner := revisions.owner_of(one)) is not None and owner.uid == seen.daemonset.uid
        )
        return max(own, default=0) + 1

    def _parts(self) -> Iterator[str]:
        shown = self.stages.stages
        if len(shown) > SHOWN:
            passed = sum(1 for one in shown if one.state is StageState.PASSED)
            yield f"{passed} of {len(shown)} stages passed"
            current = self.current
            shown = (current,) if current is not None else ()
        for one in shown:
            yield f"{one.name} {one.proved}/{len(one.nodes)}"


Assemble = Callable[[Observation], StageInputs | None]


def read(seen: Observation, assemble: Assemble | None = None) -> StagedRollout | None:
    """The rollout that is under way, None without one. `assemble` returns the inputs beside pods and
    nodes; by default those that the objects of the cluster contain.
    """
    inputs = (assemble or _from_objects)(seen)
    if inputs is None or not inputs.target.revision:
        return None
    return of(decide.layout(seen), inputs)


def of(layout: NodePodLayout, inputs: StageInputs) -> StagedRollout:
    """The rollout with these inputs."""
    return StagedRollout(inputs, stages.decide(layout, inputs))


def _from_objects(seen: Observation) -> StageInputs | None:
    return Rollouts(lambda _: None, lambda: seen.now).inputs(seen)
