"""What is told of a rollout: that it began, how it ended, that it failed. A fold over looks; each thing is told once."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gitops_ds.kinds import daemonsets, revisions
from gitops_ds.model import names
from gitops_ds.model.decision import Health, HealthState, Observation
from gitops_ds.model.live import Revision
from gitops_ds.model.objects import CommitId
from gitops_ds.model.record import Record
from gitops_ds.model.standing import RolloutCompleted, RolloutFailed, RolloutStarted


@dataclass(frozen=True, slots=True)
class Rollout:
    """The last one of an agent: of which revision, since when, whether it goes on, and whether it was said to have failed."""

    uid: str
    revision: str
    began: float
    open: bool
    failed: bool = False


def follow(before: Rollout | None, seen: Observation, health: Health) -> tuple[Rollout | None, tuple[Record, ...]]:
    """The rollout after a look, and what to tell. The first look of all only learns what goes on: it may have been told before."""
    daemonset, current = seen.daemonset, current_revision(seen)
    if current is None:
        return before, ()
    done = _is_done(health)
    if before is None or before.uid != daemonset.uid:
        return Rollout(daemonset.uid, current.hash, daemonsets.changed_at(daemonset) or seen.now, not done), ()
    commit = CommitId(daemonset.annotations.get(names.COMMIT, ""))
    whose = seen.now, daemonset.key, daemonset.uid, commit, current.number
    told: list[Record] = []
    now = before
    if before.revision != current.hash and not done:
        now = Rollout(daemonset.uid, current.hash, seen.now, open=True)
        old = sum(1 for pod in seen.pods if not pod.terminating and pod.hash != current.hash)
        told.append(RolloutStarted(*whose, old))
    elif before.revision != current.hash:
        now = replace(before, revision=current.hash, open=False)
    if now.open and done:
        now = replace(now, open=False)
        told.append(RolloutCompleted(*whose, health.tally.updated, seen.now - now.began))
    elif now.open and health.state is HealthState.FAILED and not now.failed:
        now = replace(now, failed=True)
        told.append(RolloutFailed(*whose, health.message))
    return now, tuple(told)


def current_revision(seen: Observation) -> Revision | None:
    """The newest of its own revisions that holds its template; None while there is none."""
    uid, template = seen.daemonset.uid, seen.daemonset.template
    own = (r for r in reversed(seen.revisions) if (owner := revisions.owner_of(r)) is not None and owner.uid == uid)
    return next((r for r in own if revisions.same_template(r.template, template)), None)


def _is_done(health: Health) -> bool:
    """Whether every node that can runs the wanted template; a node that is not well itself is no part of it."""
    tally = health.tally
    return not (tally.starting or tally.old or tally.parked or tally.template_fault or tally.refused) and bool(tally.updated)
