"""The bodies of pinned pods: those of the DaemonSet controller for the target, with the marks of
their rollout, and kept from their node until the earlier pod is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from gitops_ds.core import names
from gitops_ds.core.daemonset import Pod
from gitops_ds.core.decision import CreatePod, Observation, PodMark
from gitops_ds.core.objects import POD, Body, Key
from gitops_ds.core.rollouts.staged_rollout import RolloutTarget, StageInputs
from gitops_ds.core.values import replace
from gitops_ds.daemonset import decide
from gitops_ds.daemonset.node_pods import NodePodLayout, NodePods
from gitops_ds.daemonset.pod_changes import PodFactory
from gitops_ds.kube.apimachinery import timestamps
from gitops_ds.rollouts.decisions import failures

GRACE = 30.0  # seconds in which a pod ends whose template states none
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class PinnedBodies:
    """Makes the pinned pods of one reconciliation."""

    def __init__(self, layout: NodePodLayout, inputs: StageInputs) -> None:
        self._layout, self._inputs = layout, inputs
        self._target: RolloutTarget = inputs.target

    def of_target(self, node_pods: NodePods, why: str) -> CreatePod:
        """A pod of the target for a node, with the label of the rollout."""
        action = self._factory.create(node_pods, why)
        metadata = action.body["metadata"]
        labels = {
            name: value
            for name, value in metadata["labels"].items()
            if name != names.POD_TEMPLATE_GENERATION
        }
        metadata = {
            **metadata,
            # As in pods of the built-in controller, because other programs read it, although the
            # name is ours.
            "generateName": f"{self._layout.seen.daemonset.key.name}-",
            "labels": {**labels, names.ROLLOUT: self._target.hash},
            "annotations": {**(metadata.get("annotations") or {}), **self._marks(node_pods)},
        }
        return replace(action, body={**action.body, "metadata": metadata})

    def behind(self, node_pods: NodePods, why: str) -> CreatePod:
        """A pod of the target that is bound when the earlier pods of its node are gone."""
        own = self._layout.seen.daemonset
        action = self.of_target(node_pods, why)
        metadata, spec = action.body["metadata"], _apart(action.body["spec"], own.uid)
        ends = self._layout.seen.now + max(map(_grace, (own.template, self._target.template)))
        annotations = {**metadata["annotations"], names.RELEASED: timestamps.text(ends)}
        body = {**action.body, "metadata": {**metadata, "annotations": annotations}, "spec": spec}
        after = tuple(
            PodMark(key_of(pod), pod.uid, own.uid)
            for pod in node_pods.pods
            if pod.terminating and names.REPLACED not in pod.labels
        )
        return replace(action, body=body, after=after)

    def _marks(self, node_pods: NodePods) -> Mapping[str, str]:
        """What is known at the touch only: the boot of the node, and whether its agent was well."""
        boot = self._boots.get(node_pods.node, "")
        within = self._inputs.policy.progress.per_node
        was_broken = bool(node_pods.pods) and not any(
            pod.ready or self._layout.seen.now < failures.broken_at(pod, within)
            for pod in node_pods.pods
        )
        return {
            **({names.BOOT_ID: boot} if boot else {}),
            **({names.HEALS: "true"} if was_broken else {}),
        }

    @cached_property
    def _factory(self) -> PodFactory:
        """Makes pods as if the DaemonSet had the target as its template."""
        seen = self._layout.seen
        daemonset = replace(seen.daemonset, template=self._target.template)
        observation = replace(seen, daemonset=daemonset)
        return PodFactory(replace(self._layout, seen=observation, hash=self._target.hash))

    @cached_property
    def _boots(self) -> Mapping[str, str]:
        return {node.name: node.boot_id for node in self._layout.seen.nodes}


def trial_pod(seen: Observation, inputs: StageInputs, node: str) -> Body:
    """The pod of the target for a node, for a dry run before the node's pod is deleted."""
    layout = decide.layout(seen)
    node_pods = next(node_pods for node_pods in layout.nodes if node_pods.node == node)
    return PinnedBodies(layout, inputs).behind(node_pods, "").body


def key_of(pod: Pod) -> Key:
    """The key of a pod."""
    return Key(POD.group, POD.kind, pod.namespace, pod.name)


def _apart(spec: Body, daemonset: str) -> Body:
    """A pod's spec with an anti-affinity against the marked pods of its DaemonSet, by its UID."""
    affinity = spec.get("affinity") or {}
    apart = affinity.get("podAntiAffinity") or {}
    labels = {"matchLabels": {names.REPLACED: daemonset}}
    term = {"labelSelector": labels, "topologyKey": names.HOSTNAME}
    apart = {**apart, _REQUIRED: [*(apart.get(_REQUIRED) or ()), term]}
    return {**spec, "affinity": {**affinity, "podAntiAffinity": apart}}


def _grace(template: Body) -> float:
    """The seconds in which a pod of the template ends."""
    return float((template.get("spec") or {}).get("terminationGracePeriodSeconds", GRACE))
