"""Did the built-in controller do what ours would have done? A fold of looks at a DaemonSet that
somebody else looks after.

Two controllers never see the same instant, so their acts are not compared by time. What is
compared, and how:

- *Each pod that came* must be one that ours would have made: wanted at the look before, or wanted
  at a look since, with the pod
  taken out of what was seen. Theirs may have acted before we looked, so that the wish never showed;
  taking the pod out shows it.
- *Each pod that went* must be one that ours would have ended: likewise, with the pod put back. What
  ours would have kept was ended
  by theirs or by anybody (`kubectl delete`, a drain, the garbage collector): nothing tells who. It
  counts as gone elsewhere, except
  where ours wanted another pod of the same node to go, which stayed: then they chose otherwise.
- *Of a rollout* not which node came first, for theirs goes in no order: only pods of an earlier
  template went, and never were more
  nodes at risk than the budget allows. A node is at risk from the end of an available pod until
  another is available there, or,
  with surge, while a new pod that is not available stands beside an available old one. We may look
  too seldom to see the most, so
  only more than the budget is a difference.
- *The end*: an interval ends when ours wants nothing any more, the status included, and there was
  no news for a while. What ours
  wants and nobody does, without any news for long, is a difference too.

An act whose cause we can't see yet (one watch runs ahead of another) is judged again at every look
of the next seconds; and a spec explains what is ended some seconds after it changed, for theirs may
not have seen that yet.

Every cause has to be seen, if late: a spec, label or taint that comes and goes between two looks
leaves acts that nothing explains. Not told apart: an adopted pod that was never seen as an orphan
counts as one that came. Back-offs are theirs: ours wants a failed pod gone at once, and waits as
long as theirs may.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Set
from dataclasses import dataclass, field, replace

import msgspec

from gitops_ds.apimachinery import int_or_percent
from gitops_ds.daemonset import decide, manage, rolling_update
from gitops_ds.daemonset.node_pods import NodePodLayout, NodePods
from gitops_ds.daemonset.pod_changes import PodChanges
from gitops_ds.model.daemonset import DaemonSet, Pod, RollingUpdate
from gitops_ds.model.decision import CreatePod, Decision, DeleteCause, DeletePod, Observation
from gitops_ds.model.events.base import (
    Compared,
    Decided,
    Differed,
    DifferenceKind,
    Event,
)
from gitops_ds.model.objects import Key

QUIET = 5.0  # seconds without news, after which a DaemonSet whose pods are all well has settled
STALLED = 60.0  # the same where some are not
STANDSTILL = 120.0  # seconds without news, after which a wish is one that nobody shares
LONGEST_BACKOFF = manage.LONGEST_DELAY + STANDSTILL


@dataclass(frozen=True, slots=True)
class ShadowReport:
    """What a look brought to light, and after how many seconds without news the next is due."""

    records: tuple[Event, ...] = ()
    wake_after: float | None = None


class Shadow:
    """The DaemonSets of one cluster, each with what was seen of it last."""

    def __init__(self) -> None:
        self._watched: dict[Key, _Watched] = {}

    def gone(self, pod: Pod) -> None:
        """A pod vanished, and this was the last of it: also when it failed and went between two
        looks.
        """
        for watched in self._watched.values():
            if pod.owner is not None and pod.owner.uid == watched.seen.daemonset.uid:
                watched.last[pod.uid] = pod

    def look(self, told: Decided) -> ShadowReport:
        """One turn, in the order of time. A DaemonSet that is new, or ends, or can't be obeyed, is
        not judged.
        """
        seen, watched = told.seen, self._watched.get(told.daemonset)
        if seen.daemonset.deleting or told.decision.complaint:
            self.forget(told.daemonset)
            return ShadowReport()
        if watched is None or watched.seen.daemonset.uid != seen.daemonset.uid:
            before = seen if seen.daemonset.observed_generation else _bare(seen)
            watched = self._watched[told.daemonset] = _Watched(
                before, decide.layout(before), since=seen.now, news_at=seen.now
            )
        return watched.look(seen, told.decision)

    def forget(self, key: Key) -> None:
        """The DaemonSet is gone."""
        self._watched.pop(key, None)


@dataclass(frozen=True, slots=True)
class _Act:
    """A pod that came, or is ending or gone, as it was last; when that was seen.

    Of one that went: the UIDs of those that were on its node with it, and whether it was available.
    """

    pod: Pod
    at: float
    beside: frozenset[str] = frozenset()
    available: bool = False


@dataclass(slots=True)
class _Interval:
    """What happened since the last settled state."""

    created: Counter[str] = field(default_factory=Counter)
    deleted: Counter[str] = field(default_factory=Counter)
    elsewhere: Counter[str] = field(default_factory=Counter)
    replaced: int = 0
    at_risk: int = 0
    budget: int = 0
    differences: dict[tuple[DifferenceKind, str], Differed] = field(default_factory=dict)


@dataclass(slots=True)
class _Watched:
    """One DaemonSet: the last look and when there was news, acts still unexplained, and what ours
    wanted.

    `nodes_wished` are the nodes that shall get a pod, as of the last look; `uids_wished` the
    objects to be ended or changed, with their node, of the whole interval. `last` holds what
    vanished since the last look. `at_risk` outlives the interval. `outdated` is the last look at
    each spec of the last seconds but the present one, and when it was seen to have changed.
    """

    seen: Observation
    fleet: NodePodLayout
    since: float
    news_at: float
    open: bool = True
    interval: _Interval = field(default_factory=_Interval)
    arrivals: dict[str, _Act] = field(default_factory=dict)
    departures: dict[str, _Act] = field(default_factory=dict)
    last: dict[str, Pod] = field(default_factory=dict)
    nodes_wished: set[str] = field(default_factory=set)
    uids_wished: dict[str, str] = field(default_factory=dict)
    at_risk: set[str] = field(default_factory=set)
    outdated: list[tuple[float, NodePodLayout]] = field(default_factory=list)

    def look(self, seen: Observation, decision: Decision) -> ShadowReport:
        """Takes up what changed since the last look, judges it, and concludes what can be
        concluded.
        """
        fleet = decide.layout(seen)
        if self._is_news(seen, fleet) or seen.now < self.news_at:
            self.news_at = seen.now
        self.outdated = [(at, old) for at, old in self.outdated if seen.now - at <= QUIET]
        self._move(seen, fleet)
        self._judge(seen, fleet)
        self._check_budget(fleet)
        self._wish(decision)
        if self.seen.daemonset.generation != seen.daemonset.generation:
            self.outdated.append((seen.now, self.fleet))
        self.seen, self.fleet = seen, fleet
        return self._conclude(decision)

    def _is_news(self, seen: Observation, fleet: NodePodLayout) -> bool:
        before = self.seen.daemonset.version, self.seen.revisions, self.fleet.spots
        return (seen.daemonset.version, seen.revisions, fleet.spots) != before

    def _move(self, seen: Observation, fleet: NodePodLayout) -> None:
        """The pods that came and went since the last look."""
        before, now = (
            {pod.uid: pod for pod in look.pods if pod.owner is not None}
            for look in (self.seen, seen)
        )
        known = {pod.uid for pod in self.seen.pods}
        self.arrivals.update(
            (uid, _Act(pod, seen.now)) for uid, pod in now.items() if uid not in known
        )
        there = {pod.uid: pod for pod in seen.pods}
        for spot in self.fleet.spots:
            for pod in spot.staying:
                if pod.uid not in before or (pod.uid in there and not there[pod.uid].terminating):
                    continue
                last = there.get(pod.uid) or self.last.pop(pod.uid, pod)
                last = msgspec.structs.replace(last, terminating=False)
                available = self.fleet.available(pod) and fleet.available(last) and not last.ended
                self.departures[pod.uid] = _Act(last, seen.now, frozenset(spot.uids), available)
        self.last.clear()

    def _judge(self, seen: Observation, fleet: NodePodLayout) -> None:
        """Counts the acts that ours would have done too; the others stay, to be judged again."""
        self._explain_arrivals(self.nodes_wished, fleet)
        self._explain_departures(self.uids_wished.keys(), fleet)
        last = self.seen
        before = replace(seen, daemonset=last.daemonset, nodes=last.nodes, revisions=last.revisions)
        for view in (seen, before):  # the pods of now, among the causes of now and of the last look
            if any(seen.now - act.at <= QUIET for act in self.arrivals.values()):
                self._explain_arrivals(_creates(_without(view, self.arrivals)), fleet)
            if any(seen.now - act.at <= QUIET for act in self.departures.values()):
                ends = _deletes(_with(view, self.departures)) | _deletes(
                    _before(view, self.departures)
                )
                self._explain_departures(ends, fleet)

    def _explain_arrivals(self, wanted: set[str], fleet: NodePodLayout) -> None:
        """A wish for a node explains one pod there."""
        for uid, act in list(self.arrivals.items()):
            node = act.pod.node
            if node in wanted or self._surges(act.pod, fleet):
                self.interval.created[node] += 1
                del self.arrivals[uid]
                wanted.discard(node)

    def _explain_departures(self, wanted: Set[str], fleet: NodePodLayout) -> None:
        for uid, gone in list(self.departures.items()):
            rolls = self._rolls(gone.pod, fleet)
            if rolls or uid in wanted:
                self.interval.deleted[gone.pod.node] += 1
                self.interval.replaced += rolls
                if rolls and gone.available:
                    self.at_risk.add(gone.pod.node)
                del self.departures[uid]

    def _surges(self, pod: Pod, fleet: NodePodLayout) -> bool:
        """Whether a pod came beside one of another template, of which any may come first."""
        strategies = (look.seen.daemonset.strategy for look in (self.fleet, fleet))
        if not any(
            isinstance(strategy, RollingUpdate) and strategy.max_surge.of(1)
            for strategy in strategies
        ):
            return False
        beside = (
            other
            for spot in (*self.fleet.spots, *fleet.spots)
            if spot.node == pod.node
            for other in spot.pods
        )
        return any(other.hash != pod.hash for other in beside)

    def _rolls(self, pod: Pod, fleet: NodePodLayout) -> bool:
        """Whether a rollout replaces a pod of that template, by what was seen now, at the look
        before, or of an outdated spec.
        """
        looks = (self.fleet, fleet, *(old for _, old in self.outdated))
        return any(_paces(look.seen.daemonset) and not look.updated(pod) for look in looks)

    def _check_budget(self, fleet: NodePodLayout) -> None:
        """The nodes at risk now, against the budget."""
        strategy = fleet.seen.daemonset.strategy
        if not self.open:
            self.interval.at_risk = self.interval.budget = 0
        spots = {spot.node: spot for spot in fleet.spots if spot.wanted}
        well = {node for node, spot in spots.items() if any(map(fleet.available, spot.staying))}
        self.at_risk = (self.at_risk & spots.keys()) - well
        at_risk = self.at_risk
        if isinstance(strategy, RollingUpdate):
            unavailable, surge = int_or_percent.limits(strategy, fleet.desired)
            if surge:
                at_risk = {node for node in well if _is_doubled(fleet, spots[node])}
            self.interval.budget = max(self.interval.budget, surge or unavailable)
        self.interval.at_risk = max(self.interval.at_risk, len(at_risk))

    def _wish(self, decision: Decision) -> None:
        self.nodes_wished = {
            action.node for action in decision.actions if isinstance(action, CreatePod)
        }
        for action in decision.actions:
            if not isinstance(action, CreatePod):
                self.uids_wished[getattr(action, "uid", "")] = getattr(action, "node", "")

    def _conclude(self, decision: Decision) -> ShadowReport:
        """Ends the interval when nothing is wanted and all is quiet, and tells what nobody does."""
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
            due = QUIET if _is_well(self.fleet) else STALLED
            if quiet >= due:
                return ShadowReport((*records, *self._settle()))
        return ShadowReport(tuple(records), due - quiet if due > quiet else None)

    def _settle(self) -> list[Event]:
        records = self._unexplained()
        told = self.interval
        if told.differences or told.created or told.deleted or told.elsewhere:
            done = (
                len(told.differences),
                told.created,
                told.deleted,
                told.replaced,
                told.at_risk,
                told.elsewhere,
            )
            records.append(Compared(self.seen.now, self.seen.daemonset.key, self.since, *done))
        self.open, self.interval, self.uids_wished = False, _Interval(), {}
        return records

    def _unexplained(self) -> list[Event]:
        """What is left of acts that ours would not have done."""
        records: list[Event] = []
        for act in self.arrivals.values():
            records += self._differ(
                DifferenceKind.CREATE, f"no pod on {act.pod.node}", f"made {act.pod.name}"
            )
        staying = {pod.uid: pod for spot in self.fleet.spots for pod in spot.staying}
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
        """A difference; told once in an interval."""
        if (what, ours) in self.interval.differences:
            return []
        told = Differed(self.seen.now, self.seen.daemonset.key, self.since, what, ours, theirs)
        self.interval.differences[what, ours] = told
        return [told]


def _bare(seen: Observation) -> Observation:
    """A DaemonSet that its controller has not counted yet is new: all its pods were made since."""
    return replace(seen, pods=tuple(pod for pod in seen.pods if pod.owner is None))


def _without(seen: Observation, arrivals: Container[str]) -> Observation:
    """As it was before these pods came."""
    return replace(seen, pods=tuple(pod for pod in seen.pods if pod.uid not in arrivals))


def _with(seen: Observation, departures: Mapping[str, _Act]) -> Observation:
    """As it would be had these pods stayed."""
    back = [gone.pod for gone in departures.values()]
    others = [pod for pod in seen.pods if pod.uid not in departures]
    return replace(seen, pods=tuple(sorted(others + back, key=lambda pod: pod.name)))


def _before(seen: Observation, departures: Mapping[str, _Act]) -> Observation:
    """As it would be had these pods stayed, and no other come since on their nodes."""
    beside = {gone.pod.node: gone.beside for gone in departures.values()}
    pods = (pod for pod in seen.pods if pod.node not in beside or pod.uid in beside[pod.node])
    return _with(replace(seen, pods=tuple(pods)), departures)


def _moves(seen: Observation) -> PodChanges:
    """What ours would do with the pods, however many there are."""
    fleet = decide.layout(seen)
    return manage.settle(fleet) or rolling_update.pace(fleet)


def _creates(seen: Observation) -> set[str]:
    moves = _moves(seen)
    return {action.node for action in moves.creates} | {*moves.later}


def _deletes(seen: Observation) -> set[str]:
    return {action.uid for action in _moves(seen).deletes}


def _paces(daemonset: DaemonSet) -> bool:
    return isinstance(daemonset.strategy, RollingUpdate) and not daemonset.suspended


def _is_doubled(fleet: NodePodLayout, spot: NodePods) -> bool:
    """Whether a new pod that is not available stands beside an old one that is."""
    new = any(fleet.updated(pod) and not fleet.available(pod) for pod in spot.staying)
    return new and any(not fleet.updated(pod) and fleet.available(pod) for pod in spot.staying)


def _is_well(fleet: NodePodLayout) -> bool:
    """Whether nothing is on its way: each node that shall has an available pod, of the wanted
    template where pods are replaced.
    """
    rolls = _paces(fleet.seen.daemonset)
    for spot in fleet.spots:
        if spot.placement is not None and any(pod.terminating for pod in spot.pods):
            return False
        if spot.wanted and not any(
            fleet.available(pod) and (fleet.updated(pod) or not rolls) for pod in spot.pods
        ):
            return False
    return True


def _wishes(decision: Decision, *, failed: bool) -> str:
    """What is wanted, in a few words; failed pods, which theirs leaves for a back-off, only on
    demand.
    """
    creates = [action.node for action in decision.actions if isinstance(action, CreatePod)]
    others = [action for action in decision.actions if not isinstance(action, CreatePod)]
    others = [
        action
        for action in others
        if failed or not (isinstance(action, DeletePod) and action.cause is DeleteCause.FAILED)
    ]
    told = [f"pods on {_listed(creates)}"] if creates else []
    if others:
        told.append(_listed([f"{type(action).__name__} {action.key.name}" for action in others]))
    if decision.status is not None:
        told.append(f"the status {decision.status.counts}")
    return ", and ".join(told)


def _listed(words: list[str]) -> str:
    return ", ".join(words[:5]) + (f" and {len(words) - 5} more" if len(words) > 5 else "")
