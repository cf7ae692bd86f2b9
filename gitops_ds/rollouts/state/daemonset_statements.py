"""What the deployer states on a DaemonSet about its rollout: annotations of the DaemonSet, with the
target among them.

Functions get the annotations: of a DaemonSet, of an object in the cluster, or of a manifest. They
count only as they were announced (`announced_daemonsets`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from gitops_ds.core.daemonset import DaemonSet
from gitops_ds.core.objects import Body, annotations_of
from gitops_ds.kube.apimachinery import daemonsets
from gitops_ds.kube.apimachinery.daemonsets import RolloutStatus
from gitops_ds.rollouts.state import keys

# What a rollout reads from its DaemonSet. Values that another writer than the deployer gave them,
# by an edit or with an earlier copy of the DaemonSet, do not count.
READ_BY_ROLLOUTS = keys.READ_BY_ROLLOUTS
# The path of the update strategy in Git, in a JSON patch of the DaemonSet.
STRATEGY_POINTER = f"/metadata/annotations/{keys.UPDATE_STRATEGY.replace('/', '~1')}"


class RolloutPhase(StrEnum):
    """The state of a rollout in one word, for health checks of other tools."""

    PROGRESSING = "Progressing"
    HALTED = "Halted"
    COMPLETE = "Complete"  # without a target


class RolloutStatements(msgspec.Struct, frozen=True):
    """The statements on a DaemonSet with a policy, as texts: its policy, the update strategy in
    Git, which the policy replaces, the name of its target revision, the proof of its template in
    force, and the halted templates. None is not stated; an empty target replaces that of another
    writer.
    """

    policy: str
    update_strategy: str
    target: str | None
    phase: RolloutPhase
    proof: str | None
    halted: str | None

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations that state them."""
        texts = {
            keys.ROLLOUT_POLICY: self.policy,
            keys.UPDATE_STRATEGY: self.update_strategy,
            keys.TARGET: self.target,
            keys.PHASE: self.phase.value,
            keys.PROVEN: self.proof,
            keys.HALTED: self.halted,
        }
        return {name: text for name, text in texts.items() if text is not None}


def has_policy(annotations: Mapping[str, Any]) -> bool:
    """Whether a policy is stated, also an invalid one."""
    return keys.ROLLOUT_POLICY in annotations


def policy(annotations: Mapping[str, Any]) -> str:
    """The text of the policy; empty without one."""
    return str(annotations.get(keys.ROLLOUT_POLICY) or "")


def has_target(annotations: Mapping[str, Any]) -> bool:
    """Whether a target is stated, also one without a name."""
    return keys.TARGET in annotations


def target_name(annotations: Mapping[str, Any]) -> str:
    """The name of the target revision; empty without one."""
    return str(annotations.get(keys.TARGET) or "")


def is_target(annotation: object) -> bool:
    """Whether an annotation, or the last part of a path, is the name of the target revision."""
    return annotation == keys.TARGET


def proof(annotations: Mapping[str, Any]) -> str:
    """The text of the proof of the template in force; empty without one."""
    return str(annotations.get(keys.PROVEN) or "")


def has_proof(annotations: Mapping[str, Any]) -> bool:
    """Whether a proof is stated, also an invalid one."""
    return keys.PROVEN in annotations


def update_strategy(annotations: Mapping[str, Any]) -> str | None:
    """The text of the update strategy in Git; None without a policy."""
    return annotations.get(keys.UPDATE_STRATEGY)


def rollout_status(daemonset: Body) -> RolloutStatus:
    """Whether a DaemonSet is rolled out, as `daemonsets.rollout_status`."""
    return daemonsets.rollout_status(daemonset, target_name(annotations_of(daemonset)))


def may_have_parked_nodes(daemonset: DaemonSet) -> bool:
    """Whether nodes may wait for their update until they are well: in a rollout, and after."""
    annotations, counts = daemonset.annotations, daemonset.counts
    if has_target(annotations) or not has_policy(annotations):
        return has_target(annotations)
    return counts is not None and counts.updated < counts.desired
