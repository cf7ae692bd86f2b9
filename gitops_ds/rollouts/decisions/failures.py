"""The pods of a rollout's target on their nodes: from when one is judged, what counts against its
template, and the cause of failures: the template, or the nodes.

A failure on a single node can have either cause, so nodes are compared with their peers, the
touched nodes of the same operating system and architecture:

1. The template is the cause if the failed nodes of a kind outnumber those that run the target
   well. In a canary of one node its only failure therefore counts as the template's.
2. It is also the cause if two or more failed nodes of a stage outnumber the well ones of the
   stage, although the kind runs the target well elsewhere: stages may differ in what their nodes
   do.
3. While peers that still start may reverse that result, the failure is suspected: no further node
   is touched, and nothing is halted. If one more node may, one of the same stage is updated.
4. Nodes whose own conditions got worse after the touch (not ready, under pressure) are set aside.
   The template is the cause only if two or more of them outnumber the well ones, and if they
   are a greater share than of the untouched nodes of their kind.
5. A node whose agent was not ready before the touch is not evidence alone: the template is
   the cause only with a second failed node.
6. A failure after the proof, such as a slow leak of memory, is an agent's failure. The template is
   the cause only if two or more nodes fail so within a while, and outnumber the nodes of their kind
   that ran the target for at least as long.
7. A failure that others can cause (symptoms) is never evidence. Its node is set aside; where it
   would be the template's by these rules, the rollout holds until it ends, and takes no other node.
8. Any other failure is the node's: it is set aside, and counts as at risk.

Only what happens between the touch and the proof does. A reboot of the node, or a change of its
readiness, restarts that time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from gitops_ds.core.daemonset import Pod
from gitops_ds.core.live import Node
from gitops_ds.core.rollouts.rollout_policy import Gate, RolloutPolicy, Stage
from gitops_ds.core.rollouts.staged_rollout import UPDATING, NodeProgress, NodeStep
from gitops_ds.core.values import replace

# Waiting reasons of a container that the template can cause. kubelet:
# pkg/kubelet/container/sync_result.go, pkg/kubelet/images.
TEMPLATE_REASONS = frozenset(
    {
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "Failed",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)


class TouchedPod(msgspec.Struct, frozen=True):
    """A pod of the target with the times from which it is judged, in seconds since 1970: `touched`
    when it was created or its place was free, `began` also after it was bound, after its containers
    first ran and after the last change of its node, `started` also after its last change of
    readiness. `soak` is that of its stage, in seconds.
    """

    pod: Pod
    soak: float
    touched: float
    began: float
    rebooted: bool

    @classmethod
    def of(cls, pod: Pod, node: Node | None, stage: Stage, min_ready: int) -> TouchedPod:
        """The pod on its node."""
        at = touched(pod)
        since, boot_id = (node.ready_since, node.boot_id) if node else (0.0, "")
        other_boot = bool(pod.boot_id and boot_id) and boot_id != pod.boot_id
        soak = max(stage.soak, min_ready)
        began = max(at, since, pod.placed, pod.launched)
        return cls(pod, soak, at, began, other_boot or since > at)

    @property
    def started(self) -> float:
        """When it began to start, or lost its readiness."""
        return max(self.began, self.pod.ready_since or 0.0)

    @property
    def soaked_at(self) -> float:
        """When it is ready for the soak. It was not ready before the touch: the clock of a node may
        be behind that of the API server.
        """
        return max(self.touched, self.pod.ready_since or 0.0) + self.soak

    def is_soaked(self, now: float) -> bool:
        """Whether it is ready for the soak."""
        return self.pod.ready and self.soaked_at <= now

    @property
    def _lost_readiness(self) -> bool:
        """Whether its readiness last changed after the soak: it was ready, and lost it."""
        return not self.pod.ready and (self.pod.ready_since or 0.0) >= self.touched + self.soak

    def is_closed(self, passed_at: float | None, within: float) -> bool:
        """Whether its node was proved before: its stage passed with it, or its containers ran for
        the soak after the time `within` which a pod becomes ready, before they ended. The status of
        a pod does not state when it was ready before, only when that last changed; a node whose pod
        was not ready was set aside while its stage passed.
        """
        pod = self.pod
        if pod.waits or not (pod.ready or self._lost_readiness):
            return False
        if passed_at is not None and pod.created < math.floor(passed_at):
            return True
        return pod.last_run is not None and pod.last_run >= self.soak + within


def ready_within(stage: Stage, policy: RolloutPolicy) -> float:
    """The seconds that a new pod has until it is ready."""
    gate = policy.gate("pods") if "pods" in stage.gates else None
    return min(gate.ready_within if gate else policy.progress.per_node, policy.progress.per_node)


def failure(touched: TouchedPod, stage: Stage, policy: RolloutPolicy, now: float) -> str:
    """The reason in one word why a touched node fails; empty while it does not.

    Restarts count from the touch on, so none before or by a reboot of the node does; after it the
    pod has the time of a new one to start.
    """
    gate, pod = policy.gate("pods") if "pods" in stage.gates else None, touched.pod
    is_starting = now - touched.started < ready_within(stage, policy)
    if gate is not None and not (touched.rebooted and is_starting):
        if pod.trouble in TEMPLATE_REASONS and not _is_allowed(gate, pod.trouble):
            return "OOMKilled" if pod.crash == "OOMKilled" else pod.trouble
        if pod.restarts > gate.restarts and not touched.rebooted:
            return pod.crash if pod.crash == "OOMKilled" else "Restarted"
    if pod.ready or pod.waits or is_starting:
        return ""
    return pod.trouble or "NotReady"


def touched(pod: Pod) -> float:
    """When the pod was created and its place was free, in seconds since 1970."""
    return max(pod.created, pod.released)


def started(pod: Pod) -> float:
    """When the pod began to start, or lost its readiness, in seconds since 1970."""
    return max(touched(pod), pod.ready_since or 0.0)


def broken_at(pod: Pod, within: float) -> float:
    """When a pod that is not ready counts as broken instead of starting, in seconds since 1970: at
    once for a reason that does not pass, else after the time `within` that a new pod has.
    """
    return 0.0 if pod.trouble in TEMPLATE_REASONS or pod.ended else started(pod) + within


def _is_allowed(gate: Gate, reason: str) -> bool:
    return gate.reasons != "none" and reason in gate.reasons


OVERDUE = "Overdue"  # the reason of a node whose earlier pod does not end
REPLACED = "NodeReplaced"  # the reason of a node that is newer than its pod, until it is well
_ENDURED = frozenset({"NodeCordoned", "NodeDeleting", REPLACED})  # no condition of a node
_BROKEN = (NodeStep.FAILED, NodeStep.SET_ASIDE)
_WELL = (NodeStep.SOAKING, NodeStep.PROVED)


class AttributedNodes(msgspec.Struct, frozen=True):
    """The nodes after the attribution: failures that nodes cause are set aside. `template` are the
    nodes whose failure the template causes; for `suspected` nodes starting peers decide, for
    `alone` nodes one more node of their stage. `held` are set aside, and no node is taken until
    they are well, because others cause their failure.
    """

    nodes: Mapping[str, NodeProgress]
    template: frozenset[str] = frozenset()
    suspected: frozenset[str] = frozenset()
    alone: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()


@dataclass(slots=True)
class _PeerGroup:
    """The nodes of a kind, or of a kind in a stage, by their step."""

    steps: Counter[NodeStep] = field(default_factory=Counter)
    undecided: int = 0
    healing: int = 0
    worse: int = 0
    unwell: int = 0

    def add(self, one: NodeProgress) -> None:
        self.steps[one.step] += 1
        starts = one.step in UPDATING
        self.healing += one.step is NodeStep.FAILED and one.heals
        self.undecided += starts and one.reason != OVERDUE
        self.worse += _is_worse(one)
        self.unwell += one.step is NodeStep.PARKED and one.reason not in _ENDURED

    @property
    def failed(self) -> int:
        return self.steps[NodeStep.FAILED]

    @property
    def well(self) -> int:
        return sum(self.steps[step] for step in _WELL)

    def fails(self, at_least: int, others: int) -> bool:
        """Whether at least that many nodes failed, two if their agents were not ready before, and
        they outnumber the well ones plus that many others.
        """
        if self.healing == self.failed:
            at_least = max(2, at_least)
        return self.failed >= at_least and self.failed > self.well + others

    @property
    def worsens(self) -> bool:
        """Whether the conditions of touched nodes got worse more often than those of untouched
        ones.
        """
        untouched = self.steps[NodeStep.PARKED] + self.steps[NodeStep.WAITING]
        touched = self.steps.total() - untouched
        return (
            self.worse >= 2
            and self.worse > self.well + self.undecided
            and self.unwell * touched < self.worse * max(1, untouched)
        )


def attributed(
    nodes: Mapping[str, NodeProgress], kind: Callable[[str], Hashable]
) -> AttributedNodes:
    """Divides the failures by their cause. `kind` groups similar nodes."""
    blocked = {name: one for name, one in nodes.items() if one.cause and one.step in _BROKEN}
    if not blocked:
        return _attributed(nodes, kind)
    aside = {name: replace(one, step=NodeStep.SET_ASIDE) for name, one in blocked.items()}
    result = _attributed({**nodes, **aside}, kind)
    # As if they were evidence: where they would halt the rollout, or would need another node.
    judged = _attributed(nodes, kind)
    decided = judged.template | judged.suspected | judged.alone
    return replace(result, held=frozenset(blocked) & decided)


def _attributed(
    nodes: Mapping[str, NodeProgress], kind: Callable[[str], Hashable]
) -> AttributedNodes:
    late = _late(nodes.values(), kind)
    if not late and not any(node.step in _BROKEN for node in nodes.values()):
        return AttributedNodes(nodes)
    groups = _groups(nodes.values(), kind)
    result = dict(nodes)
    template, suspected, alone = set(late), set[str](), set[str]()
    for name in late:
        result[name] = replace(nodes[name], step=NodeStep.FAILED)
    for name, one in nodes.items():
        whole, stage = groups[kind(name)], groups[kind(name), one.stage]
        if _is_worse(one) and whole.worsens:
            result[name] = replace(one, step=NodeStep.FAILED)
            template.add(name)
        elif one.step is not NodeStep.FAILED:
            continue
        further = min(1, stage.steps[NodeStep.WAITING])
        if _fails(whole, stage, further, starting=True):
            template.add(name)
        elif _fails(whole, stage, 0, starting=True):
            alone.add(name)
        elif _fails(whole, stage, 0, starting=False):
            suspected.add(name)
        else:
            result[name] = replace(one, step=NodeStep.SET_ASIDE)
    return AttributedNodes(result, frozenset(template), frozenset(suspected), frozenset(alone))


def _fails(whole: _PeerGroup, stage: _PeerGroup, further: int, *, starting: bool) -> bool:
    """Rules 1 and 2, even if that many further nodes, and with `starting` all starting ones, become
    well.
    """
    first, second = (group.undecided if starting else 0 for group in (whole, stage))
    return whole.fails(1, first + further) or stage.fails(2, second + further)


def _late(nodes: Iterable[NodeProgress], kind: Callable[[str], Hashable]) -> frozenset[str]:
    """The proved nodes of rule 6. Those that the target has run on for less time say nothing."""
    failed = [node for node in nodes if node.step is NodeStep.PROVED and node.reason and node.ran]
    late = set[str]()
    for group in {kind(failed_node.node) for failed_node in failed}:
        peers = [failed_node for failed_node in failed if kind(failed_node.node) == group]
        shortest = min(peer.ran for peer in peers)
        well = sum(
            node.step is NodeStep.PROVED
            and not node.reason
            and node.ran >= shortest
            and kind(node.node) == group
            for node in nodes
        )
        if len(peers) > 1 and len(peers) > well:
            late.update(peer.node for peer in peers)
    return frozenset(late)


def _groups(
    nodes: Iterable[NodeProgress], kind: Callable[[str], Hashable]
) -> dict[Hashable, _PeerGroup]:
    groups: dict[Hashable, _PeerGroup] = {}
    for node in nodes:
        of = kind(node.node)
        for key in (of, (of, node.stage)):
            groups.setdefault(key, _PeerGroup()).add(node)
    return groups


def _is_worse(one: NodeProgress) -> bool:
    return one.step is NodeStep.SET_ASIDE and one.reason not in _ENDURED and not one.cause
