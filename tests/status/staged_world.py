"""A world with a staged rollout, whose agent is watched like in the service and in commands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gitops_ds.core import names
from gitops_ds.core.deployer_state import DeployerState
from gitops_ds.core.events.base import Event
from gitops_ds.core.health import Health, HealthState
from gitops_ds.core.objects import CommitId
from gitops_ds.core.rollouts.staged_rollout import StageApproval
from gitops_ds.rollouts.state import keys, rollout_annotations, target_revisions
from gitops_ds.rollouts.views import rollout_tracker, staged_rollouts
from gitops_ds.rollouts.views.rollout_tracker import RolloutView, TrackedRollout
from gitops_ds.status import health
from gitops_ds.status.agents import Agent
from gitops_ds.status.fault_attribution import FaultScope
from gitops_ds.status.health import ProgressMarker
from tests.rollouts.rollout_world import RolloutWorld

FAST: dict[str, Any] = {
    "stages": [
        {"name": "canary", "nodes": {"count": 2}, "soak": "60s"},
        {"name": "rest", "soak": "10s", "pace": {"start": 2, "factor": 2, "max": "50%"}},
    ],
    "limits": {"atRisk": {"cluster": "40%"}},
}


@dataclass
class Watched:
    """The world, and the state of its agent between observations."""

    world: RolloutWorld
    marker: ProgressMarker = field(default_factory=ProgressMarker)
    rollout: TrackedRollout | None = None
    events: list[Event] = field(default_factory=list)
    states: list[HealthState] = field(default_factory=list)

    def approve(self, stage: str) -> None:
        """An approver agrees to a stage by a signed commit."""
        stored = self.world.revisions.values()
        target = next(
            one["metadata"]
            for one in stored
            if names.ROLLOUT in (one["metadata"].get("labels") or {})
        )
        hash = target["labels"][names.ROLLOUT]
        approval = StageApproval(stage, hash, "team-a", "ada@example.com", "commit 0123456789ab")
        target.setdefault("annotations", {})
        target["annotations"] |= {
            keys.APPROVERS: "team-a",
            keys.APPROVALS: rollout_annotations.encoded_approvals([approval]),
        }

    def agent(self) -> Agent:
        """The agent as a command reads it, without a memory."""
        seen = self.world.observe()
        rollout = staged_rollouts.read(seen)
        return Agent(seen, health.judge(seen), DeployerState(), rollout=rollout)

    def look(self) -> Health:
        """The health as the service follows it; its events are kept."""
        seen = self.world.observe()
        staged = staged_rollouts.read(seen)
        judged = health.follow(self.marker, seen, FaultScope(rollout=staged))
        self.marker = judged.course
        commit = CommitId(seen.daemonset.annotations.get(names.COMMIT, ""))
        view = RolloutView(seen, judged.health, commit, staged)
        self.rollout, events = rollout_tracker.follow(self.rollout, view, 0.0)
        self.events += events
        self.states.append(judged.health.state)
        return judged.health

    def commit(self, image: str) -> None:
        """A commit with another image."""
        self.world.commit(image)
        self.world.body["metadata"]["annotations"][names.COMMIT] = image

    def rounds(self, number: int) -> Health:
        """That many rounds of five seconds; returns the health after them."""
        for _ in range(number):
            self.world.pass_time()
            self.look()
        return self.look()

    def event_names(self) -> list[str]:
        """The kinds of the events so far."""
        return [event.definition.kind for event in self.events]


def watched(policy: dict[str, Any] | None = None, nodes: int = 10, **more: Any) -> Watched:
    """A world whose nodes run the first template, under a policy."""
    policy = policy or FAST
    world = RolloutWorld(policy, nodes, **more)
    annotations = world.body["metadata"]["annotations"]
    annotations[keys.ROLLOUT_POLICY] = target_revisions.policy_text(policy, ())
    annotations[names.COMMIT] = "agent:1"
    there = Watched(world)
    there.rounds(2)
    there.events.clear()
    return there
