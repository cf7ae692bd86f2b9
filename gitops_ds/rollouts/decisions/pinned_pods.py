"""The writes of a staged rollout beside the built-in DaemonSet controller, which does not know
about it.

The DaemonSet keeps its proven template and the update strategy OnDelete, so every pod that its
controller makes (a node that joins, an eviction, a deletion) is a proven one. A node is updated by
four writes: its pod is marked and deleted; while that ends, a pod of the target is created for the
node, which is nominated for it. The controller counts the pinned pod as the node's pod and makes no
other.

A required anti-affinity against marked pods of its DaemonSet keeps a pinned pod from its node until
the earlier one is gone, also for the scheduler's preemption: to evict pods of a lower priority
would not make room beside it. So the scheduler itself binds the pod at the end of the earlier one,
whether or not the service runs. A scheduling gate would need the service for that: a pod that is
gated when the service ends leaves its node without an agent. The scheduler counts terminating pods
for an anti-affinity, not for a topology spread (pkg/scheduler/framework/plugins/interpodaffinity
and podtopologyspread).

A pinned pod has no template generation, which would count as that of any later template of the
DaemonSet (IsPodUpdated in pkg/controller/daemon/util/daemonset_util.go): its hash alone identifies
its template, for every controller and for kubectl. So no client counts the pod of an abandoned
rollout as updated.

The nomination (`status.nominatedNodeName`, KEP-5278) reserves the place of the earlier pod: without
it a pod of the same priority that waits may take the place first, which the scheduler tries as soon
as the earlier pod is gone. A failed attempt to bind the pod clears it, so it is repeated. It is
optional: a rollout works without it.
https://github.com/kubernetes/enhancements/tree/master/keps/sig-scheduling/5278-nominated-node-name-for-expectation
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

import msgspec

from gitops_ds.core import names
from gitops_ds.core.daemonset import Pod, RollingUpdate
from gitops_ds.core.decision import (
    Action,
    CreatePod,
    Decision,
    DeleteCause,
    DeletePod,
    NominatePod,
    Observation,
    PodMark,
    PromoteRevision,
    RelabelPod,
)
from gitops_ds.core.objects import CONTROLLER_REVISION, Key
from gitops_ds.core.rollouts.proven_templates import ProofKind, TemplateProof
from gitops_ds.core.rollouts.staged_rollout import (
    RECORD,
    NodeStep,
    RolloutRecord,
    RolloutTarget,
    StageInputs,
    StagesDecision,
)
from gitops_ds.core.values import replace
from gitops_ds.daemonset import decide, pod_changes
from gitops_ds.daemonset.node_pods import NodePodLayout
from gitops_ds.daemonset.pod_changes import BURST
from gitops_ds.kube.apimachinery import revisions
from gitops_ds.rollouts.decisions import rollout_holds, stages
from gitops_ds.rollouts.decisions.node_steps import NodeSteps
from gitops_ds.rollouts.decisions.pinned_bodies import PinnedBodies, key_of
from gitops_ds.rollouts.state import daemonset_statements, proofs, target_revisions

LOOK_AGAIN = 15.0  # seconds until other agents and the pods of nodes are observed again
_GATED = "nothing removes the scheduling gate of an earlier version"
# Its pod is marked and deleted, another one created, and its node nominated.
WRITES_OF_A_NODE = 4


class StagedDecision(msgspec.Struct, frozen=True):
    """The writes of a rollout, and the stages and the pods of nodes that they follow from."""

    decision: Decision
    stages: StagesDecision
    layout: NodePodLayout


def decide_pinned(seen: Observation, inputs: StageInputs) -> StagedDecision:
    """The writes for the rollout of one DaemonSet, a deterministic function of the observation and
    the inputs.
    """
    layout = decide.layout(seen)
    decided = stages.decide(layout, inputs)
    writes = _Writes(layout, inputs, decided)
    steps: tuple[tuple[Action, ...], ...] = (
        tuple(writes.record()),
        tuple(writes.nominations()),
        tuple(writes.relabels()),
        tuple(writes.replacements()),
        tuple(writes.promotion()),
    )
    wake_after = min(_waits(seen, inputs, decided), default=None)
    decision = Decision(tuple(filter(None, steps)), wake_after=wake_after)
    return StagedDecision(decision, decided, layout)


def decide_owned(seen: Observation, inputs: StageInputs) -> StagedDecision:
    """As `decide_pinned`, if this process is the DaemonSet controller itself.

    No pod waits: the pods of open nodes are created from the target, those of all others from the
    proven template.
    """
    base, layout = decide.decide(seen), decide.layout(seen)
    decided = stages.decide(layout, inputs)
    writes = _Writes(layout, inputs, decided)
    own = tuple(tuple(map(writes.of_open_node, step)) for step in base.steps)
    steps = (
        tuple(writes.record()),
        tuple(writes.relabels()),
        *own,
        tuple(writes.deletes())[:BURST],
        tuple(writes.promotion()),
    )
    waits = list(_waits(seen, inputs, decided))
    wake_after = min(
        waits + [wait for wait in (base.wake_after,) if wait is not None], default=None
    )
    decision = replace(base, steps=tuple(filter(None, steps)), wake_after=wake_after)
    return StagedDecision(decision, decided, layout)


def _waits(seen: Observation, inputs: StageInputs, decided: StagesDecision) -> Iterator[float]:
    """The seconds after which time or other DaemonSets may change the decision."""
    if decided.wake_at is not None:
        yield decided.wake_at - seen.now
    if inputs.behind or inputs.busy or inputs.halted_elsewhere:
        yield LOOK_AGAIN
    writes = inputs.policy.limits.api.writes_per_second
    if writes and inputs.at_once is not None and len(decided.take) >= inputs.at_once:
        yield WRITES_OF_A_NODE / writes


def ungated(seen: Observation) -> tuple[Action, ...]:
    """The deletes of pods that version 0.1.0 left with a scheduling gate, which nothing removes.
    The DaemonSet controller makes other pods for their nodes.
    """
    return tuple(
        pod_changes.delete(node_pods, pod, DeleteCause.UNWANTED, _GATED)
        for node_pods in decide.layout(seen).nodes
        for pod in node_pods.staying
        if pod.gated
    )


class _Writes:
    def __init__(self, layout: NodePodLayout, inputs: StageInputs, decided: StagesDecision) -> None:
        self.layout, self.inputs, self.decided = layout, inputs, decided
        self.target: RolloutTarget = inputs.target
        self.halted = decided.halt is not None or bool(inputs.held)
        self.refused = rollout_holds.is_refused(inputs, layout.seen.now)
        self.unrecorded = self.refused and inputs.refuses == RECORD
        self.taken = frozenset(decided.take)
        parked = (node.node for node in decided.nodes if node.step is NodeStep.PARKED)
        self.open = decided.open.difference(parked)  # a broken node is not touched
        self.returned = frozenset(decided.returned)
        self.by_node = {node_pods.node: node_pods for node_pods in layout.nodes}

    def record(self) -> Iterator[Action]:
        if self.inputs.is_edited or self.unrecorded:
            return
        if self.target.staged and self.decided.record != self.inputs.record:
            yield target_revisions.recorded(
                self._revision, self.target.uid, self.decided.record, "the rollout moved on"
            )
        yield from self._proof_in_force()
        for revision in self.layout.seen.revisions:
            record = target_revisions.record_in(revision)
            left = RolloutRecord(halt=record.halt)
            is_target = target_revisions.daemonset_of(revision) is not None
            if not is_target or not target_revisions.is_promoted(revision) or record == left:
                continue
            if not self.target.staged or revision.uid != self.target.uid:
                key, why = self._key_of(revision.name), "its rollout was replaced"
                yield target_revisions.recorded(key, revision.uid, left, why)

    def _proof_in_force(self) -> Iterator[Action]:
        """Writes the proof of the DaemonSet's template to its revision, for the history."""
        text = daemonset_statements.proof(self.layout.seen.daemonset.annotations)
        if self.target.staged or self.target.edited or not text:
            return
        for revision in self.layout.seen.revisions:
            is_own = revision.hash == self.layout.hash and target_revisions.is_promoted(revision)
            if is_own and not revision.deleting and proofs.proof_in(revision) is None:
                why = "its template is proven"
                yield proofs.recorded(self._key_of(revision.name), revision.uid, text, why)

    def relabels(self) -> Iterator[Action]:
        """Relabels pods that run the target under the hash of another revision, at rest also under
        that of a deleted one, and before the target is promoted: a DaemonSet must not own two
        revisions with one template.
        """
        hash, known = self.target.hash or self.layout.hash, self.layout.seen.revisions
        if self.target.edited or (self.target.staged and not self.decided.commits):
            return
        same = {
            proofs.hash_of(revision)
            for revision in known
            if revisions.same_template(revision.template, self.target.template)
        }
        if not self.target.staged:
            same |= self.target.hashes.difference(map(proofs.hash_of, known))
        for node_pods in self.layout.nodes:
            for pod in node_pods.staying:
                if pod.hash in same & self.target.hashes and pod.hash != hash:
                    why = "its template is that of this revision"
                    yield RelabelPod(key_of(pod), pod.uid, hash, why)

    def nominations(self) -> Iterator[Action]:
        """Nominates the nodes of waiting pods for them; a halted rollout starts no pod."""
        if self.halted or not self.inputs.nominates:
            return
        for node_pods in self.layout.nodes:
            for pod in node_pods.staying:
                if pod.waits and not pod.nominated:
                    why = "it gets the place of the earlier pod"
                    yield NominatePod(key_of(pod), pod.uid, node_pods.node, why)

    def deletes(self) -> Iterator[DeletePod]:
        if self.inputs.is_edited:
            return
        for node in self.decided.take:
            for pod in self.by_node[node].staying:
                if not self._steps.is_target(pod):
                    yield pod_changes.delete(
                        self.by_node[node], pod, DeleteCause.OUTDATED, "its node is updated"
                    )
        for node_pods in self.layout.nodes:
            if node_pods.node in self.taken:
                continue
            for pod in node_pods.staying:
                if pod.gated:
                    yield pod_changes.delete(node_pods, pod, DeleteCause.UNWANTED, _GATED)
                elif pod.waits and self.halted:
                    yield pod_changes.delete(
                        node_pods, pod, DeleteCause.UNWANTED, "the rollout is halted"
                    )
                elif self._is_left_over(pod) or (
                    node_pods.node in self.returned and not self._is_known(pod)
                ):
                    why = "its template was abandoned before it was proven"
                    yield pod_changes.delete(node_pods, pod, DeleteCause.UNWANTED, why)

    def replacements(self) -> Iterator[DeletePod | CreatePod]:
        """The first BURST deletes, and creates for their nodes and for those whose earlier pod is
        already ending.
        """
        deletes = tuple(self.deletes())[:BURST]
        own = self.layout.seen.daemonset.uid
        for action in deletes:
            mark = PodMark(action.key, action.uid, own) if action.node in self.taken else None
            yield replace(action, mark=mark)
        later = self.taken - {action.node for action in deletes}
        yield from [action for action in self.creates() if action.node not in later][:BURST]

    def creates(self) -> Iterator[CreatePod]:
        """Pinned pods for the nodes taken now, and for open nodes whose earlier pod is already
        ending.
        """
        if not self.target.revision or self.halted or self._is_rolled_by_edit:
            return
        for node_pods in self.layout.nodes:
            ends = bool(node_pods.pods) and not node_pods.staying and node_pods.node in self.open
            if node_pods.wanted and (ends or node_pods.node in self.taken):
                yield self._bodies.behind(node_pods, "its node is updated")

    def of_open_node(self, action: Action) -> Action:
        """The same action, with the target as the template of a pod for an open node."""
        if (
            not isinstance(action, CreatePod)
            or action.node not in self.open
            or self.halted
            or self._is_rolled_by_edit
            or not self.target.revision
        ):
            return action
        return self._bodies.of_target(self.by_node[action.node], action.why)

    @property
    def _is_rolled_by_edit(self) -> bool:
        """Whether the DaemonSet controller rolls an edited template out, with `atRest:
        RollingUpdate`: it deletes every pod of another template again.
        """
        return self.target.edited and isinstance(self.layout.seen.daemonset.strategy, RollingUpdate)

    def promotion(self) -> Iterator[Action]:
        revision = next(
            (known for known in self.layout.seen.revisions if known.uid == self.target.uid), None
        )
        if self.refused or not self.decided.commits or revision is None or any(self.relabels()):
            return
        is_proven = proofs.proof_in(revision) is not None
        complete, proof = self.decided.complete, self._proof if self.decided.complete else ""
        why = "the rollout is complete" if complete else "most nodes are updated"
        if self._has_other_owned():
            if complete and not is_proven:
                yield proofs.recorded(self._revision, revision.uid, proof, why)
            return
        if is_proven or (target_revisions.is_promoted(revision) and not complete):
            return
        labels = (self.target.template.get("metadata") or {}).get("labels") or {}
        yield PromoteRevision(
            self._revision,
            self.target.uid,
            {**labels, names.REVISION_HASH: self.target.hash, **self._label_of_early()},
            why,
            proof,
        )

    def _has_other_owned(self) -> bool:
        """Whether the DaemonSet owns another revision with the template, by an edit or an earlier
        rollout. Of two equal ones the built-in controller keeps one and relabels every pod with its
        hash, also those of other templates (kubernetes/kubernetes#111280).
        """
        template = proofs.identity(self.target.template)
        return any(
            target_revisions.is_promoted(revision)
            and revision.uid != self.target.uid
            and proofs.identity(revision.template) == template
            for revision in self.layout.seen.revisions
        )

    @property
    def _proof(self) -> str:
        target, now = self.target, self.layout.seen.now
        proof = TemplateProof(
            proofs.identity(target.template),
            target.commit,
            now,
            ProofKind.ROLLOUT,
            target.source,
            target.hash,
            since=now,
        )
        return proofs.encoded(proof)

    def _label_of_early(self) -> Mapping[str, str]:
        """The label that still identifies a promoted revision as a target."""
        return {} if self.decided.complete else {names.ROLLOUT: self.target.hash}

    @cached_property
    def _steps(self) -> NodeSteps:
        return NodeSteps(self.layout, self.inputs)

    def _is_left_over(self, pod: Pod) -> bool:
        """A pod of a rollout that was replaced or reverted; one that is ready waits until its node
        is taken.
        """
        return self.target.staged and pod.pinned and not pod.ready and not self._is_known(pod)

    def _is_known(self, pod: Pod) -> bool:
        """Whether a pod runs the target or the proven template."""
        return self._steps.is_target(pod) or pod.hash in self.target.proven

    @cached_property
    def _bodies(self) -> PinnedBodies:
        return PinnedBodies(self.layout, self.inputs)

    @property
    def _revision(self) -> Key:
        return self._key_of(self.target.revision)

    def _key_of(self, revision: str) -> Key:
        namespace = self.layout.seen.daemonset.key.namespace
        return Key(CONTROLLER_REVISION.group, CONTROLLER_REVISION.kind, namespace, revision)
