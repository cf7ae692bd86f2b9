"""How far a commit has come in a cluster, as its status on a forge tells it: by stage, and never
back. Pure.

A commit's own are the agents that carry it: those that it changed. What it did not change says
nothing about it.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import astuple, dataclass, field
from enum import IntEnum

from gitops_ds.fleet.agents import Agent
from gitops_ds.forges.contract import StatusState
from gitops_ds.model import names
from gitops_ds.model.change import Operation
from gitops_ds.model.decision import HealthState
from gitops_ds.model.events.base import Event
from gitops_ds.model.events.deployer import (
    Applied,
    CommitRejected,
    NewCommit,
    Reconciled,
    ReconcileFailed,
    VerificationFailed,
)
from gitops_ds.model.events.requests import CommitHeld, Suspended
from gitops_ds.model.objects import Key, template_of
from gitops_ds.model.plural import counted
from gitops_ds.model.skip_reasons import SkipReason
from gitops_ds.redaction import report


class StageKind(IntEnum):
    """In this order; what failed may still come well, and nothing else goes on from there."""

    APPLYING = 0
    ROLLING = 1
    FAILED = 2
    DONE = 3
    OVERTAKEN = 4


@dataclass(frozen=True, slots=True, order=True)
class CommitStage:
    """A step; of a rollout with the tenth of the nodes that are done. `words` are for people."""

    step: StageKind
    tenth: int = 0
    words: str = field(default="", compare=False)

    @property
    def over(self) -> bool:
        """Whether nothing more is to come."""
        return self.step >= StageKind.DONE

    @property
    def state(self) -> StatusState:
        """What the forge shows beside the words. What was overtaken did not fail, and was not seen
        to do well.
        """
        match self.step:
            case StageKind.APPLYING:
                return StatusState.PENDING
            case StageKind.ROLLING:
                return StatusState.RUNNING
            case StageKind.OVERTAKEN:
                return StatusState.CANCELED
            case StageKind.FAILED:
                return StatusState.FAILURE
            case StageKind.DONE:
                return StatusState.SUCCESS


@dataclass(slots=True)
class CommitProgress:
    """One commit: whether a pass has applied it, what that wrote, why it is not applied (for good,
    or for now).
    """

    commit: str
    applied: bool = False
    written: set[Key] = field(default_factory=set)
    trouble: str = ""
    waits: str = ""
    said: CommitStage | None = None


@dataclass(slots=True)
class CommitTracker:
    """The commits of one repository that something is still to be said of, in the order in which
    they came.
    """

    known: dict[str, CommitStage]
    open: list[CommitProgress] = field(default_factory=list)
    _written: set[Key] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Goes on with those that an earlier process did not see to their end."""
        self.open += [
            CommitProgress(commit, said=said)
            for commit, said in self.known.items()
            if not said.over
        ]

    def handle(self, told: Event) -> None:
        """What the repository's deployer tells."""
        match told:
            case NewCommit(commit=commit):
                self._at(commit)
            case Applied(change=change) if (
                change.key.is_daemonset and change.operation is not Operation.DELETE
            ):
                self._written.add(change.key)
            case CommitRejected(commit=str(commit), findings=findings):
                self._stands(commit, trouble=f"not applied: {report.line_of(findings[0])}")
            case VerificationFailed(commit=commit, message=message):
                self._stands(commit, trouble=f"not applied: {message}")
            case CommitHeld(commit=commit, reason=reason):
                self._stands(commit, waits=f"held: {reason}")
            case Suspended(commit=str(commit), changes=changes):
                self._stands(commit, waits=f"suspended: {counted(changes, 'change')} not applied")
            case ReconcileFailed(message=message, retry_in=None) if (
                self.open and not self.open[-1].applied
            ):
                self.open[-1].trouble = f"not applied: {message}"  # only a person can help
            case Reconciled(commit=str(commit)):
                self._ended(told, commit)
            case _:
                pass

    def _ended(self, told: Reconciled, commit: str) -> None:
        written, self._written = self._written, set()
        failing = told.failed
        waits = next(
            (refusal.message for refusal in failing if refusal.reason is SkipReason.WAITS), ""
        )
        waits = waits or next((f"suspended: {refusal.message}" for refusal in told.suspended), "")
        trouble = next(
            (
                f"not applied: {refusal.message}"
                for refusal in failing
                if refusal.reason is not SkipReason.WAITS
            ),
            "",
        )
        self._stands(commit, trouble, waits)
        if course := self._at(commit):
            course.applied = not waits
            course.written |= written

    def _stands(self, commit: str, trouble: str = "", waits: str = "") -> None:
        if course := self._at(commit):
            course.trouble, course.waits = trouble, waits

    def _at(self, commit: str) -> CommitProgress | None:
        """The commit's course, begun where there is none; none where all was said, and of
        templates, which are no commits.
        """
        said = self.known.get(commit)
        if template_of(commit) or (said is not None and said.over):
            return None
        found = next((course for course in self.open if course.commit == commit), None)
        if found is None:
            self.open.append(found := CommitProgress(commit, said=said))
        return found

    def note(self, course: CommitProgress, stage: CommitStage) -> None:
        """The forge shows this now."""
        course.said = stage
        if stage.over:
            self.open.remove(course)

    def due(
        self, agents: Sequence[Agent], wanted: Set[Key]
    ) -> list[tuple[CommitProgress, CommitStage]]:
        """What there is to say: only what is further on than what was said. `wanted` are the agents
        that Git names now.
        """
        found = []
        for number, course in enumerate(list(self.open)):
            later = [one.commit for one in self.open[number + 1 :] if one.applied] + _after(
                self.known, course.commit
            )
            now = _stage(course, agents, wanted if not later else frozenset(), later)
            if (
                now.step is StageKind.OVERTAKEN
                and course.said is not None
                and course.said.step is StageKind.FAILED
            ):
                self.open.remove(course)  # it failed, and somebody made it good by another commit
            elif course.said is None or now > course.said:
                found.append((course, now))
        return found


def _after(known: dict[str, CommitStage], commit: str) -> list[str]:
    """The commits that came after it and of which all was said."""
    order = list(known)
    return (
        [later for later in order[order.index(commit) + 1 :] if known[later].step is StageKind.DONE]
        if commit in known
        else []
    )


def _stage(
    course: CommitProgress, agents: Sequence[Agent], wanted: Set[Key], later: Sequence[str]
) -> CommitStage:
    if course.trouble:
        return CommitStage(StageKind.FAILED, words=course.trouble)
    if not course.applied and not later:
        return CommitStage(StageKind.APPLYING, words=course.waits or "applying")
    there = {
        agent.key: agent.seen.daemonset.annotations.get(names.COMMIT, "")
        for agent in agents
        if agent.seen.daemonset.uid
    }
    own = [agent for agent in agents if there.get(agent.key) == course.commit]
    unseen = {key for key in course.written if there.get(key) not in (course.commit, *later)} | (
        wanted - there.keys()
    )
    if not own and not unseen:
        return (
            CommitStage(StageKind.OVERTAKEN, words=f"overtaken by {later[0][:12]}")
            if later
            else CommitStage(StageKind.DONE, words="applied")
        )
    if failed := next((agent for agent in own if agent.health.state is HealthState.FAILED), None):
        return CommitStage(StageKind.FAILED, words=f"{_name(failed)}: {failed.health.message}")
    done, all = (
        sum(agent.health.tally.updated for agent in own),
        sum(sum(astuple(agent.health.tally)) for agent in own),
    )
    if unseen or not all_well(own):
        return CommitStage(
            StageKind.ROLLING,
            done * 10 // all if all else 0,
            f"rolling out {done}/{all} nodes" if all else "rolling out",
        )
    return CommitStage(StageKind.DONE, words=_well(own, done))


def all_well(agents: Sequence[Agent]) -> bool:
    """Whether every node that can runs the agents as they are wanted; a node that is not well
    itself is no part of that.
    """
    over = (HealthState.HEALTHY, HealthState.DEGRADED)
    tallies = [agent.health.tally for agent in agents]
    open = any(t.starting or t.old or t.parked or t.template_fault or t.refused for t in tallies)
    return not open and all(agent.health.state in over for agent in agents)


def _well(agents: Sequence[Agent], nodes: int) -> str:
    ill = next((agent for agent in agents if agent.health.state is not HealthState.HEALTHY), None)
    if ill:
        return f"rolled out on {counted(nodes, 'node')}; {_name(ill)}: {ill.health.message}"
    return (
        f"all {len(agents)} agents healthy"
        if len(agents) > 1
        else f"{_name(agents[0])} healthy on {counted(nodes, 'node')}"
    )


def _name(agent: Agent) -> str:
    return f"{agent.key.namespace}/{agent.key.name}"
