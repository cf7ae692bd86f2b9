"""The events of a rollout: it started, completed or failed. A fold over observations; each event is
emitted once.
"""

from __future__ import annotations

import msgspec

from gitops_ds.core import names
from gitops_ds.core.decision import Observation
from gitops_ds.core.events import agents
from gitops_ds.core.events.base import Event
from gitops_ds.core.health import Health, HealthState
from gitops_ds.core.live import Revision
from gitops_ds.core.objects import CommitId
from gitops_ds.core.values import replace
from gitops_ds.kube.apimachinery import daemonsets, revisions, timestamps
from gitops_ds.rollouts.state import daemonset_statements, target_revisions
from gitops_ds.rollouts.views.staged_rollouts import StagedRollout


class TrackedRollout(msgspec.Struct, frozen=True):
    """The last rollout of an agent: its commit and revision, its start (seconds since 1970),
    whether it is in progress, and whether its failure is reported.
    """

    uid: str
    commit: CommitId
    revision: str
    began: float
    open: bool
    failed: bool = False


class RolloutView(msgspec.Struct, frozen=True):
    """A rollout as observed: its observation, its health, its commit (empty for an edit in the
    cluster), and the staged rollout in progress.
    """

    seen: Observation
    health: Health
    commit: CommitId
    staged: StagedRollout | None = None

    @property
    def revision(self) -> tuple[str, int] | None:
        """The hash and the number of the revision that is rolled out; None until it exists and the
        DaemonSet controller has numbered it, which it does after a promotion. A staged rollout
        counts from its first pod on: the DaemonSet gets the template at its end. Under a policy no
        node gets a template that another client edited: the revision is that of the proven one.
        """
        if self.staged is not None:
            return self.staged.target.hash, self.staged.number(self.seen)
        current = current_revision(self.seen)
        return (current.hash, current.number) if current is not None and current.number else None

    @property
    def done(self) -> bool:
        """Whether the wanted template runs on every healthy node, and every stage is passed."""
        return _is_done(self.health) and (self.staged is None or self.staged.complete)


def follow(
    before: TrackedRollout | None, view: RolloutView, since: float
) -> tuple[TrackedRollout | None, tuple[Event, ...]]:
    """The rollout after an observation, and its new events.

    The first observation of a DaemonSet created before `since` emits none: an earlier process may
    have emitted them.
    """
    seen, health, staged = view.seen, view.health, view.staged
    daemonset, revision = seen.daemonset, view.revision
    if revision is None:
        return before, ()
    hash, number = revision
    commit = CommitId(daemonset.annotations.get(names.COMMIT, ""))
    if before is None or before.uid != daemonset.uid:
        if created_at(seen) < since:
            began = staged.stages.record.began if staged else daemonsets.changed_at(daemonset)
            return TrackedRollout(daemonset.uid, commit, hash, began or seen.now, not view.done), ()
        before = TrackedRollout(daemonset.uid, CommitId(""), "", seen.now, open=False)
    now, events = before, list[Event]()
    if commit and commit != before.commit:
        now = replace(now, commit=commit)
        events.append(
            agents.CommitArrived(
                seen.now,
                daemonset.key,
                daemonset.uid,
                commit,
                daemonset.annotations.get(names.CHANGE_CAUSE, ""),
            )
        )
    whose = seen.now, daemonset.key, daemonset.uid, view.commit, number
    if hash != before.revision:
        now = replace(now, revision=hash, began=seen.now, open=True, failed=False)
        events.append(
            agents.RolloutStarted(
                *whose,
                # the first ones of them may be ending already
                len({pod.node for pod in seen.pods if pod.hash != hash}),
            )
        )
    if now.open and view.done:
        now = replace(now, open=False)
        events.append(
            agents.RolloutCompleted(*whose, health.node_counts.updated, seen.now - now.began)
        )
    elif now.open and health.state is HealthState.FAILED and not now.failed:
        now = replace(now, failed=True)
        halted = staged is not None and staged.halt is not None
        events.append(agents.RolloutFailed(*whose, health.message, halted))
    return now, tuple(events)


def created_at(seen: Observation) -> float:
    """The creation time of the DaemonSet in seconds since 1970; 0 without one."""
    return (
        timestamps.seconds(
            str((seen.daemonset.raw.get("metadata") or {}).get("creationTimestamp") or "")
        )
        or 0.0
    )


def current_revision(seen: Observation) -> Revision | None:
    """The newest revision of the DaemonSet with the template that its nodes get; None until it is
    created.
    """
    uid, template = seen.daemonset.uid, seen.daemonset.template
    if daemonset_statements.has_policy(seen.daemonset.annotations):
        template = target_revisions.proven_template(seen.daemonset, seen.revisions) or template
    own = (
        r
        for r in reversed(seen.revisions)
        if (owner := revisions.owner_of(r)) is not None and owner.uid == uid
    )
    return next((r for r in own if revisions.same_template(r.template, template)), None)


def _is_done(health: Health) -> bool:
    """Whether the current template runs on every healthy node."""
    node_counts = health.node_counts
    return not (
        node_counts.starting
        or node_counts.old
        or node_counts.parked
        or node_counts.template_fault
        or node_counts.refused
    ) and bool(node_counts.updated)
