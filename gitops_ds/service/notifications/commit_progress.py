"""The progress of a commit in a cluster, in stages that never go back, for its status on a forge.
Pure.

The agents of a commit are those that it changed, which have its annotation; others do not count.
Of several commits in one poll, which are applied at once with the newest one, each that gave an
agent its template has its own progress.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from enum import IntEnum

import msgspec

from gitops_ds.core import names, stated_reasons
from gitops_ds.core.change import Operation
from gitops_ds.core.events.base import Event
from gitops_ds.core.events.commits import CommitRejected, CommitWaits, NewCommit, VerificationFailed
from gitops_ds.core.events.deployer import Applied, Reconciled, ReconcileFailed
from gitops_ds.core.events.requests import CommitHeld, Suspended
from gitops_ds.core.health import HealthState
from gitops_ds.core.objects import Key, short, template_of
from gitops_ds.core.plain_text import counted
from gitops_ds.core.redaction import report
from gitops_ds.core.rollouts.staged_rollout import StageState
from gitops_ds.core.rollouts.template_cause import TemplateCause
from gitops_ds.core.skip_reasons import SkipReason
from gitops_ds.forges.contract import StatusState
from gitops_ds.status import cluster_reports
from gitops_ds.status.agents import Agent, is_edited

_WAITING = (SkipReason.WAITS, SkipReason.FINISH_FIRST)


class StageKind(IntEnum):
    """The stages, in this order. Only a failed commit may still become done."""

    APPLYING = 0
    ROLLING = 1
    FAILED = 2
    DONE = 3
    OVERTAKEN = 4


@dataclass(frozen=True, slots=True, order=True)
class CommitStage:
    """A step; of a rollout with the tenths of the nodes that are done, and each passed stage of a
    staged one counts as eleven. `words` are the text of the status.
    """

    step: StageKind
    tenth: int = 0
    words: str = field(default="", compare=False)

    @property
    def over(self) -> bool:
        """Whether it is a final stage."""
        return self.step >= StageKind.DONE

    @property
    def state(self) -> StatusState:
        """The state on the forge. An overtaken commit has neither failed nor succeeded."""
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
    """One commit: whether it is applied, the objects written for it with their commits (that of a
    DaemonSet gave its template, and may be an earlier one), and why it is not applied
    (`failure`), or not yet (`hold`). `published` is the stage on the forge. `waits`: for other
    clusters; `earlier` are the commits that were applied meanwhile, and do not overtake it.
    """

    commit: str
    applied: bool = False
    written: dict[Key, str] = field(default_factory=dict)
    failure: str = ""
    hold: str = ""
    published: CommitStage | None = None
    waits: bool = False
    earlier: set[str] = field(default_factory=set)


@dataclass(slots=True)
class CommitTracker:
    """The commits of one repository before their last stage, in order."""

    stages: dict[str, CommitStage]
    open: list[CommitProgress] = field(default_factory=list)
    _written: dict[Key, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Continues with the commits that an earlier process has left before their last stage."""
        self.open += [
            CommitProgress(commit, published=stage)
            for commit, stage in self.stages.items()
            if not stage.over
        ]

    def handle(self, event: Event) -> None:
        """Handles an event of the repository's deployer."""
        match event:
            case NewCommit(commit=commit):
                self._progress_of(commit)
            case Applied(change=change, gave=gave) if (
                change.key.is_daemonset and change.operation is not Operation.DELETE
            ):
                self._written[change.key] = gave
            case CommitRejected(commit=str(commit), findings=findings):
                self._block(commit, failure=f"not applied: {report.line_of(findings[0])}")
            case VerificationFailed(commit=commit, message=message):
                self._block(commit, failure=f"not applied: {message}")
            case CommitHeld(commit=commit, reason=reason):
                self._block(commit, hold=f"held: {reason}")
            case CommitWaits(commit=commit, reason=reason):
                self._block(commit, hold=reason)
                if progress := self._progress_of(commit):
                    progress.waits = True
            case Suspended(commit=str(commit), changes=changes, reason=reason):
                words = f"suspended: {counted(changes, 'change')} not applied"
                self._block(commit, hold=stated_reasons.after(words, reason))
            case ReconcileFailed(message=message, retry_in=None) if (
                self.open and not self.open[-1].applied
            ):
                self.open[-1].failure = f"not applied: {message}"  # a retry cannot help
            case Reconciled(commit=str(commit)):
                self._reconciled(event, commit)
            case _:
                pass

    def _reconciled(self, event: Reconciled, commit: str) -> None:
        written, self._written = self._written, {}
        waiting = [skip.message for skip in event.failed if skip.reason in _WAITING]
        failed = [skip.message for skip in event.failed if skip.reason not in _WAITING]
        suspended = [f"suspended: {skip.message}" for skip in event.suspended]
        deletions = [f"held: {skip.message}" for skip in event.deletions_held]
        hold = next(iter([*waiting[:1], *suspended, *deletions]), "")
        failure = next((f"not applied: {message}" for message in failed), "")
        self._block(commit, failure, hold)
        for known in self.open:
            if known.waits and known.commit != commit:
                known.earlier.add(commit)
        if progress := self._progress_of(commit):
            progress.applied, progress.waits = not hold, False
            progress.written |= written

    def _block(self, commit: str, failure: str = "", hold: str = "") -> None:
        if progress := self._progress_of(commit):
            progress.failure, progress.hold = failure, hold

    def _progress_of(
        self, commit: str, before: CommitProgress | None = None
    ) -> CommitProgress | None:
        """The commit's progress, started if necessary, in order or `before` another one; None after
        its last stage, and for the templates in the cluster, which are not commits.
        """
        published = self.stages.get(commit)
        if template_of(commit) or (published is not None and published.over):
            return None
        progress = next((known for known in self.open if known.commit == commit), None)
        if progress is None:
            progress = CommitProgress(commit, published=published)
            # An earlier commit is applied while the newest one waits for other clusters.
            waiting = (at for at, one in enumerate(self.open) if one.waits or one is before)
            self.open.insert(next(waiting, len(self.open)), progress)
        return progress

    def note(self, progress: CommitProgress, stage: CommitStage) -> None:
        """Stores the stage that the forge shows."""
        progress.published = stage
        if stage.over:
            self.open.remove(progress)

    def due(
        self, agents: Sequence[Agent], agents_in_git: Set[Key]
    ) -> list[tuple[CommitProgress, CommitStage]]:
        """The stages to publish: those after the published ones. `agents_in_git` are their keys."""
        self._open_earlier(agents)
        stages = []
        for number, progress in enumerate(list(self.open)):
            later = [known.commit for known in self.open[number + 1 :] if known.applied]
            later += _after(self.stages, progress.commit)
            later = [open_commit for open_commit in later if open_commit not in progress.earlier]
            stage = _stage(progress, agents, agents_in_git if not later else frozenset(), later)
            published = progress.published
            if (
                stage.step is StageKind.OVERTAKEN
                and published is not None
                and published.step is StageKind.FAILED
            ):
                self.open.remove(progress)  # it failed, and a later commit has fixed it
            elif published is None or stage > published:
                stages.append((progress, stage))
        return stages

    def _open_earlier(self, agents: Sequence[Agent]) -> None:
        """Continues with the commits that were applied together with a later one."""
        heads = {known.commit: known for known in self.open if known.applied}
        for agent in agents:
            cause = _of_earlier(agent)
            head = heads.get(cause.head) if cause is not None else None
            if cause is None or head is None:
                continue
            if progress := self._progress_of(cause.commit, before=head):
                progress.applied = True
                progress.written[agent.key] = cause.commit
                progress.earlier.add(head.commit)


def _of_earlier(agent: Agent) -> TemplateCause | None:
    """The record of a template whose commit was not the newest one when it was applied."""
    cause = agent.state.causes.get(agent.key)
    is_earlier = cause is not None and cause.is_applied and cause.commit != cause.head
    return cause if is_earlier else None


def _after(stages: dict[str, CommitStage], commit: str) -> list[str]:
    """The later commits that are done."""
    order = list(stages)
    return (
        [
            later
            for later in order[order.index(commit) + 1 :]
            if stages[later].step is StageKind.DONE
        ]
        if commit in stages
        else []
    )


def _stage(
    progress: CommitProgress, agents: Sequence[Agent], agents_in_git: Set[Key], later: Sequence[str]
) -> CommitStage:
    if progress.failure:
        return CommitStage(StageKind.FAILED, words=progress.failure)
    if not progress.applied and not later:
        return CommitStage(StageKind.APPLYING, words=progress.hold or "applying")
    commits = {
        agent.key: agent.seen.daemonset.annotations.get(names.COMMIT, "")
        for agent in agents
        if agent.seen.daemonset.uid
    }
    written = _written(progress, agents)
    own = [
        agent
        for agent in agents
        if (carried := commits.get(agent.key)) == progress.commit
        or (carried and carried == written.get(agent.key))
    ]
    # After a later commit the watch may show any commit of that one.
    unseen = {key for key, commit in written.items() if commits.get(key) != commit and not later}
    unseen |= agents_in_git - commits.keys()
    if not own and not unseen:
        return (
            CommitStage(StageKind.OVERTAKEN, words=f"overtaken by {short(later[0])}")
            if later
            else CommitStage(StageKind.DONE, words="applied")
        )
    edited = [agent for agent in own if is_edited(agent)]
    failed = (agent for agent in own if agent.health.state is HealthState.FAILED)
    if broken := next((agent for agent in failed if agent not in edited), None):
        return CommitStage(StageKind.FAILED, words=f"{_name(broken)}: {broken.health.message}")
    done, all = (
        sum(agent.health.node_counts.updated for agent in own),
        sum(sum(msgspec.structs.astuple(agent.health.node_counts)) for agent in own),
    )
    if unseen or edited or not cluster_reports.all_well(own):
        return CommitStage(
            StageKind.ROLLING,
            (done * 10 // all if all else 0) + 11 * _passed(own),
            _rolling(own, f"{done}/{all} nodes" if all else ""),
        )
    return CommitStage(StageKind.DONE, words=_well(own, done))


def _written(progress: CommitProgress, agents: Sequence[Agent]) -> dict[Key, str]:
    """The commits of the agents that were written for a commit, by the records of the state also
    those that an earlier process wrote; without those of other commits of its poll.
    """
    written = {key: commit or progress.commit for key, commit in progress.written.items()}
    for agent in agents:
        cause = agent.state.causes.get(agent.key)
        if cause is None or cause.head != progress.commit:
            continue
        if cause.commit == progress.commit:
            written.setdefault(agent.key, cause.commit)
        elif _of_earlier(agent) is not None:
            written.pop(agent.key, None)
    return written


def _passed(agents: Sequence[Agent]) -> int:
    """The passed stages of all staged rollouts; a passed stage stays passed."""
    return sum(
        stage.state is StageState.PASSED
        for agent in agents
        if agent.rollout is not None
        for stage in agent.rollout.stages.stages
    )


def _rolling(agents: Sequence[Agent], nodes: str) -> str:
    """`rolling out canary 2/2, rest 3/8` of a staged rollout, with the agent's name for several;
    else the nodes.
    """
    staged = [agent for agent in agents if agent.rollout is not None]
    parts = [
        f"{_name(agent)} {agent.rollout.progress}" if len(staged) > 1 else agent.rollout.progress
        for agent in staged
        if agent.rollout is not None
    ]
    words = " ".join(("rolling out", "; ".join(parts) or nodes)).rstrip()
    return "; ".join((words, *dict.fromkeys(_approvals(staged))))


def _approvals(agents: Sequence[Agent]) -> Iterator[str]:
    """`rest approved by ada@example.com`, of each current stage that an approver agreed to."""
    for rollout in (agent.rollout for agent in agents if agent.rollout is not None):
        for approval in rollout.approvals_of(rollout.current) if rollout.current else ():
            if approval.by:
                yield f"{approval.stage} approved by {approval.by}"


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
