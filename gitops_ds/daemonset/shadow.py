"""The shadow mode: a comparison of another DaemonSet controller's actions with ours. A fold of
observations of a DaemonSet that the other controller manages.

Two controllers never act on the same observation, so actions are not compared by time. The
comparison:

- *Each new pod* must be one that ours would have created: wanted at the previous observation, or at
  one since, with the pod removed from the observation. The other controller may have acted before
  our observation, so that the demand was never visible; the removal of the pod shows it.
- *Each removed pod* must be one that ours would have deleted: likewise, with the pod restored. A
  pod that ours would have kept was deleted by the other controller or by another writer (`kubectl
  delete`, a drain, the garbage collector); the writer is unknown. It counts as deleted elsewhere,
  unless ours wanted to delete another pod of the same node, which stayed: then the
  controllers chose different pods.
- *In a rollout* the order of nodes is not compared, since upstream has none: only pods of an
  earlier template may be deleted, and never more nodes at risk than the budget allows. A node that
  needs a pod is at risk from the deletion of an available one until another is available there, or,
  with surge, while a new pod that is not available exists beside an available old one. A new pod
  that failed may have been available between two observations, so its node no longer counts.
  Observations may be too rare to show the maximum, so only an excess over the budget is a
  difference.
- *The end*: an interval ends when ours wants nothing more, the status included, without any change
  for a while. An action that ours wants and the other controller does not take, without any change
  for long, is a difference too.

An action whose cause is not visible yet (one watch is ahead of another) is judged again at every
observation of the next seconds; and an earlier spec explains deletions for some seconds after its
change, since the other controller may not have seen that yet.

Every cause must be observed, possibly late: a spec, label or taint that changes and returns between
two observations leaves actions without an explanation. Limits: an adopted pod that was never
observed as an orphan counts as a new one. Back-offs are the other controller's: ours wants a failed
pod deleted at once, and allows the other's longest back-off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field

import msgspec

from gitops_ds.core.daemonset import DaemonSet, Pod, RollingUpdate
from gitops_ds.core.decision import CreatePod, Decision, DeleteCause, DeletePod, Observation
from gitops_ds.core.events.base import Compared, Decided, Differed, DifferenceKind, Event
from gitops_ds.core.objects import Key
from gitops_ds.core.plain_text import listed
from gitops_ds.core.values import replace
from gitops_ds.daemonset import decide, memory
from gitops_ds.daemonset.node_pods import NodePodLayout, NodePods
from gitops_ds.daemonset.shadow_views import (
    ObservedAct,
    nodes_of_ended_pods,
    nodes_to_create,
    uids_to_delete,
    with_departures,
    without_arrivals,
    without_owned_pods,
)
from gitops_ds.kube.apimachinery import daemonsets

QUIET = 5.0  # seconds without a change, after which a DaemonSet with healthy pods has settled
STALLED = 60.0  # the same with unhealthy pods
STANDSTILL = 120.0  # seconds without a change, after which a missing action is a difference
LONGEST_BACKOFF = memory.LONGEST_DELAY + STANDSTILL


class ShadowReport(msgspec.Struct, frozen=True):
    """The events of an observation, and the seconds without a change after which the next one is
    due.
    """

    records: tuple[Event, ...] = ()
    wake_after: float | None = None


class Shadow:
    """The DaemonSets of one cluster, each with its last observation."""

    def __init__(self) -> None:
        self._watched: dict[Key, _Watched] = {}

    def gone(self, pod: Pod) -> None:
        """The last state of a pod that vanished, including one that failed and vanished between two
        observations.
        """
        for watched in self._watched.values():
            if pod.owner is not None and pod.owner.uid == watched.seen.daemonset.uid:
                watched.last[pod.uid] = pod

    def observe(self, decided: Decided) -> ShadowReport:
        """Handles one reconciliation, in order of time. A DaemonSet that is new, is being deleted,
        or cannot be reconciled is not compared.
        """
        seen, watched = decided.seen, self._watched.get(decided.daemonset)
        if seen.daemonset.deleting or decided.decision.complaint:
            self.forget(decided.daemonset)
            return ShadowReport()
        if watched is None or watched.seen.daemonset.uid != seen.daemonset.uid:
            before = seen if seen.daemonset.observed_generation else without_owned_pods(seen)
            watched = self._watched[decided.daemonset] = _Watched(
                before, decide.layout(before), since=seen.now, news_at=seen.now
            )
        return watched.observe(seen, decided.decision)

    def forget(self, key: Key) -> None:
        """Forgets a deleted DaemonSet."""
        self._watched.pop(key, None)


@dataclass(slots=True)
class _Interval:
    """The actions since the last settled state."""

    created: Counter[str] = field(default_factory=Counter)
    deleted: Counter[str] = field(default_factory=Counter)
    elsewhere: Counter[str] = field(default_factory=Counter)
    replaced: int = 0
    at_risk: int = 0
    budget: int = 0
    differences: dict[tuple[DifferenceKind, str], Differed] = field(default_factory=dict)


@dataclass(slots=True)
class _Watched:
    """One DaemonSet: the last observation, the time of the last change, actions without an
    explanation, and what ours wanted.

    `uids_wished` are the objects to be deleted or changed, with their node, of the whole interval.
    `last` holds pods that vanished since the last observation. `at_risk` outlives the interval.
    `outdated` are the last observations of the earlier specs of the last seconds, with the time of
    the change.
    """

    seen: Observation
    layout: NodePodLayout
    since: float
    news_at: float
    open: bool = False
    interval: _Interval = field(default_factory=_Interval)
    arrivals: dict[str, ObservedAct] = field(default_factory=dict)
    departures: dict[str, ObservedAct] = field(default_factory=dict)
    last: dict[str, Pod] = field(default_factory=dict)
    uids_wished: dict[str, str] = field(default_factory=dict)
    at_risk: set[str] = field(default_factory=set)
    outdated: list[tuple[float, NodePodLayout]] = field(default_factory=list)

    def observe(self, seen: Observation, decision: Decision) -> ShadowReport:
        """Handles an observation: records the changes, compares them, and reports the
        conclusions.
        """
        layout = decide.layout(seen)
        if not self.open:
            self.interval = _Interval()
        self.news_at = seen.now if self._is_news(seen, layout) else min(self.news_at, seen.now)
        self.outdated = [(at, old) for at, old in self.outdated if seen.now - at <= QUIET]
        self._move(seen, layout)
        self._judge(seen, layout)
        self._check_budget(layout)
        self._wish(decision)
        if self.seen.daemonset.generation != seen.daemonset.generation:
            self.outdated.append((seen.now, self.layout))
        self.seen, self.layout = seen, layout
        return self._conclude(decision)

    def _is_news(self, seen: Observation, layout: NodePodLayout) -> bool:
        before = self.seen.daemonset.version, self.seen.revisions, self.layout.nodes
        return (seen.daemonset.version, seen.revisions, layout.nodes) != before

    def _move(self, seen: Observation, layout: NodePodLayout) -> None:
        """The pods that were created and deleted since the last observation."""
        before, now = (
            {pod.uid: pod for pod in look.pods if pod.owner is not None}
            for look in (self.seen, seen)
        )
        uids = {pod.uid for pod in self.seen.pods}
        self.arrivals.update(
            (uid, ObservedAct(pod, seen.now)) for uid, pod in now.items() if uid not in uids
        )
        there = {pod.uid: pod for pod in seen.pods}
        vanished = tuple(self.last.values())
        for node_pods in self.layout.nodes:
            for pod in node_pods.staying:
                if pod.uid not in before or (pod.uid in there and not there[pod.uid].terminating):
                    continue
                last = there.get(pod.uid) or self.last.pop(pod.uid, pod)
                last = replace(last, terminating=False)
                available = self.layout.available(pod) and layout.available(last) and not last.ended
                risks = available and node_pods.wanted
                self.departures[pod.uid] = ObservedAct(last, seen.now, risks)
        self._excuse(nodes_of_ended_pods(self.seen, (*seen.pods, *vanished)))
        self.last.clear()

    def _excuse(self, nodes: Set[str]) -> None:
        """The deletions so far no longer put these nodes at risk."""
        self.at_risk -= nodes
        for uid, act in self.departures.items():
            if act.pod.node in nodes:
                self.departures[uid] = replace(act, risks=False)

    def _judge(self, seen: Observation, layout: NodePodLayout) -> None:
        """Counts the actions that ours would also have taken; the others are judged again later."""
        self._explain_departures(self.uids_wished.keys(), layout)
        last = self.seen
        before = replace(seen, daemonset=last.daemonset, nodes=last.nodes, revisions=last.revisions)
        # the present pods, with the causes of this observation and of the previous one
        for view in (seen, before):
            if any(seen.now - act.at <= QUIET for act in self.arrivals.values()):
                self._explain_arrivals(
                    nodes_to_create(without_arrivals(view, self.arrivals)),
                    layout,
                )
            if any(seen.now - act.at <= QUIET for act in self.departures.values()):
                self._explain_departures(
                    uids_to_delete(with_departures(view, self.departures)), layout
                )

    def _explain_arrivals(self, nodes: set[str], layout: NodePodLayout) -> None:
        """A pod wanted on a node explains one new pod there, and earlier ones that have ended."""
        for uid, act in sorted(self.arrivals.items(), key=lambda one: not one[1].pod.ended):
            node = act.pod.node
            if node in nodes or self._surges(act.pod, layout):
                self.interval.created[node] += 1
                del self.arrivals[uid]
                if not act.pod.ended:
                    nodes.discard(node)

    def _explain_departures(self, uids: Set[str], layout: NodePodLayout) -> None:
        for uid, gone in list(self.departures.items()):
            rolls = self._rolls(gone.pod, layout)
            if rolls or uid in uids:
                self.interval.deleted[gone.pod.node] += 1
                self.interval.replaced += rolls
                if rolls and gone.risks:
                    self.at_risk.add(gone.pod.node)
                del self.departures[uid]

    def _surges(self, pod: Pod, layout: NodePodLayout) -> bool:
        """Whether a pod was created beside one of another template; with surge, any of these may be
        first.
        """
        strategies = (look.seen.daemonset.strategy for look in (self.layout, layout))
        if not any(
            isinstance(strategy, RollingUpdate) and strategy.surges for strategy in strategies
        ):
            return False
        beside = (
            other
            for node_pods in (*self.layout.nodes, *layout.nodes)
            if node_pods.node == pod.node
            for other in node_pods.pods
        )
        return any(other.hash != pod.hash for other in beside)

    def _rolls(self, pod: Pod, layout: NodePodLayout) -> bool:
        """Whether a rollout replaces a pod of that template, by the present observation, the
        previous one, or one of an outdated spec.
        """
        looks = (self.layout, layout, *(old for _, old in self.outdated))
        return any(_paces(look.seen.daemonset) and not look.updated(pod) for look in looks)

    def _check_budget(self, layout: NodePodLayout) -> None:
        """The nodes at risk now, against the budget."""
        strategy = layout.seen.daemonset.strategy
        by_node = {node_pods.node: node_pods for node_pods in layout.nodes if node_pods.wanted}
        well = {
            node
            for node, node_pods in by_node.items()
            if any(map(layout.available, node_pods.staying))
        }
        self.at_risk = (self.at_risk & by_node.keys()) - well
        at_risk = self.at_risk
        if isinstance(strategy, RollingUpdate):
            unavailable, surge = daemonsets.limits(strategy, layout.desired)
            if surge:
                at_risk = {node for node in well if _is_doubled(layout, by_node[node])}
            self.interval.budget = max(self.interval.budget, surge or unavailable)
        self.interval.at_risk = max(self.interval.at_risk, len(at_risk))

    def _wish(self, decision: Decision) -> None:
        for action in decision.actions:
            if not isinstance(action, CreatePod):
                self.uids_wished[getattr(action, "uid", "")] = getattr(action, "node", "")

    def _conclude(self, decision: Decision) -> ShadowReport:
        """Ends the interval when nothing is wanted and nothing changes; reports wanted actions that
        were not taken.
        """
        now, quiet = self.seen.now, self.seen.now - self.news_at
        wishes = _wishes(decision, failed=quiet >= LONGEST_BACKOFF)
        wants = bool(decision.actions or decision.status)
        moved = bool(
            self.interval.created or self.interval.deleted or self.arrivals or self.departures
        )
        if not self.open and (wants or moved):
            self.open, self.since = True, now
        records: list[Event] = []
        if not self.open:
            return ShadowReport()
        if self.interval.at_risk > self.interval.budget > 0:
            ours = f"at most {self.interval.budget} nodes at risk at once"
            records += self._differ(
                DifferenceKind.ROLLOUT, ours, f"put {self.interval.at_risk} at risk"
            )
        if wants:
            if wishes and quiet >= STANDSTILL:
                records += [
                    *self._unexplained(),
                    *self._differ(DifferenceKind.STANDSTILL, wishes, f"nothing for {quiet:.0f} s"),
                ]
            due = STANDSTILL if quiet < STANDSTILL else LONGEST_BACKOFF
        else:
            due = QUIET if _is_well(self.layout) else STALLED
            if quiet >= due:
                return ShadowReport((*records, *self._settle()))
        return ShadowReport(tuple(records), due - quiet if due > quiet else None)

    def _settle(self) -> list[Event]:
        records = self._unexplained()
        interval = self.interval
        if interval.differences or interval.created or interval.deleted or interval.elsewhere:
            done = (
                len(interval.differences),
                interval.created,
                interval.deleted,
                interval.replaced,
                interval.at_risk,
                interval.elsewhere,
            )
            records.append(Compared(self.seen.now, self.seen.daemonset.key, self.since, *done))
        self.open, self.uids_wished = False, {}
        return records

    def _unexplained(self) -> list[Event]:
        """The remaining actions, which ours would not have taken."""
        records: list[Event] = []
        for act in self.arrivals.values():
            records += self._differ(
                DifferenceKind.CREATE, f"no pod on {act.pod.node}", f"made {act.pod.name}"
            )
        staying = {pod.uid: pod for node_pods in self.layout.nodes for pod in node_pods.staying}
        for gone in self.departures.values():
            meant = [
                uid
                for uid, node in self.uids_wished.items()
                if node == gone.pod.node and uid in staying
            ]
            if meant:
                ours = f"an end of {staying[meant[0]].name} on {gone.pod.node}"
                records += self._differ(DifferenceKind.DELETE, ours, f"ended {gone.pod.name}")
            else:
                self.interval.elsewhere[gone.pod.node] += 1
        self.arrivals, self.departures = {}, {}
        return records

    def _differ(self, what: DifferenceKind, ours: str, theirs: str) -> list[Event]:
        """The event of a difference; once in an interval."""
        if (what, ours) in self.interval.differences:
            return []
        event = Differed(self.seen.now, self.seen.daemonset.key, self.since, what, ours, theirs)
        self.interval.differences[what, ours] = event
        return [event]


def _paces(daemonset: DaemonSet) -> bool:
    return isinstance(daemonset.strategy, RollingUpdate) and not daemonset.suspended


def _is_doubled(layout: NodePodLayout, node_pods: NodePods) -> bool:
    """Whether a new pod that is not yet available exists beside an available old one."""
    staying = node_pods.staying
    new = any(
        layout.updated(pod) and not layout.available(pod) and not pod.ended for pod in staying
    )
    return new and any(not layout.updated(pod) and layout.available(pod) for pod in staying)


def _is_well(layout: NodePodLayout) -> bool:
    """Whether nothing is in progress: each node that needs a pod has an available one, of the
    wanted template if pods are replaced.
    """
    rolls = _paces(layout.seen.daemonset)
    for node_pods in layout.nodes:
        if node_pods.placement is not None and any(pod.terminating for pod in node_pods.pods):
            return False
        if node_pods.wanted and not any(
            layout.available(pod) and (layout.updated(pod) or not rolls) for pod in node_pods.pods
        ):
            return False
    return True


def _wishes(decision: Decision, *, failed: bool) -> str:
    """The wanted actions in a short form; deletions of failed pods, for which upstream has a
    back-off, only with `failed`.
    """
    creates = [action.node for action in decision.actions if isinstance(action, CreatePod)]
    others = [action for action in decision.actions if not isinstance(action, CreatePod)]
    others = [
        action
        for action in others
        if failed or not (isinstance(action, DeletePod) and action.cause is DeleteCause.FAILED)
    ]
    parts = [f"pods on {listed(creates, 5)}"] if creates else []
    if others:
        parts.append(listed((f"{type(action).__name__} {action.key.name}" for action in others), 5))
    if decision.status is not None:
        parts.append(f"the status {decision.status.counts}")
    return ", and ".join(parts)
