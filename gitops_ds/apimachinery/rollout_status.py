"""Whether a DaemonSet is rolled out, by the rule of `kubectl rollout status`, from its status only.

staging/src/k8s.io/kubectl/pkg/polymorphichelpers/rollout_status.go; under OnDelete, where kubectl
reports an error, it is done when every node has an available pod, old or new. A DaemonSet that
names the target of a staged rollout is not rolled out before it has the template of the target.
"""

from __future__ import annotations

import msgspec

from gitops_ds.model import names
from gitops_ds.model.objects import Body
from gitops_ds.model.rollouts.rollout_progress import RolloutProgress


class RolloutStatus(msgspec.Struct, frozen=True):
    """`message` states the missing part, or that the rollout is complete."""

    done: bool
    message: str


def judge(daemonset: Body) -> RolloutStatus:
    """The status of the rollout by the counters and the observed generation."""
    metadata, status = daemonset.get("metadata") or {}, daemonset.get("status") or {}
    if (status.get("observedGeneration") or 0) < (metadata.get("generation") or 0):
        return RolloutStatus(False, "the new specification was not observed yet")
    desired, updated = (
        status.get("desiredNumberScheduled") or 0,
        status.get("updatedNumberScheduled") or 0,
    )
    available = status.get("numberAvailable") or 0
    if target := (metadata.get("annotations") or {}).get(names.TARGET):
        return RolloutStatus(False, f"the staged rollout of {target} is in progress")
    if _strategy(daemonset) == "RollingUpdate" and updated < desired:
        return RolloutStatus(False, f"{updated} of {desired} pods are updated")
    if available < desired:
        return RolloutStatus(False, f"{available} of {desired} pods are available")
    return RolloutStatus(True, f"all {desired} pods are available")


def progress(daemonset: Body) -> RolloutProgress:
    """The nodes with an available pod, under RollingUpdate at most the updated ones; none before
    the specification is observed. A node whose new pod starts counts while others are available.
    """
    status = daemonset.get("status") or {}
    desired = status.get("desiredNumberScheduled") or 0
    done = min(desired, status.get("numberAvailable") or 0)
    generation = (daemonset.get("metadata") or {}).get("generation") or 0
    if (status.get("observedGeneration") or 0) < generation:
        return RolloutProgress(0, desired)
    if _strategy(daemonset) == "RollingUpdate":
        done = min(done, status.get("updatedNumberScheduled") or 0)
    return RolloutProgress(done, desired)


def _strategy(daemonset: Body) -> str:
    strategy = (daemonset.get("spec") or {}).get("updateStrategy") or {}
    return str(strategy.get("type") or "RollingUpdate")
