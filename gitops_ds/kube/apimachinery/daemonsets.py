"""DaemonSets, parsed from bodies of the API server, and whether one is rolled out.

maxUnavailable and maxSurge are a number, or a percentage of the desired nodes.
https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/daemon-set-v1/#DaemonSetSpec
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gitops_ds.core import names, startup_taints
from gitops_ds.core.daemonset import Counts, DaemonSet, OnDelete, RollingUpdate, Share, Strategy
from gitops_ds.core.objects import Body, key_of
from gitops_ds.core.rollouts.rollout_progress import RolloutProgress
from gitops_ds.kube.apimachinery import label_selector, timestamps

_PERCENT = re.compile(r"0*([0-9]{1,9})%")


def share(value: Any) -> Share | None:
    """An IntOrString as a share of the nodes; None if it is neither a count nor a percentage."""
    if isinstance(value, int) and not isinstance(value, bool):
        return Share(max(0, value))
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    return Share(int(match[1]), percent=True) if match else None


def strategy(spec: Body) -> Strategy:
    """The update strategy of a DaemonSet's spec; absent and invalid fields have the defaults of the
    API server.
    """
    chosen = spec.get("updateStrategy") or {}
    if chosen.get("type") == "OnDelete":
        return OnDelete()
    rolling = chosen.get("rollingUpdate") or {}
    return RollingUpdate(
        share(rolling.get("maxUnavailable")) or Share(1), share(rolling.get("maxSurge")) or Share(0)
    )


def limits(strategy: RollingUpdate, desired: int) -> tuple[int, int]:
    """(maxUnavailable, maxSurge) in nodes. If both are 0, one node may be unavailable: otherwise no
    rollout would end.
    """
    unavailable, surge = strategy.max_unavailable.of(desired), strategy.max_surge.of(desired)
    return (1, 0) if desired and not unavailable and not surge else (unavailable, surge)


COUNTERS = {
    "desired": "desiredNumberScheduled",
    "current": "currentNumberScheduled",
    "misscheduled": "numberMisscheduled",
    "ready": "numberReady",
    "updated": "updatedNumberScheduled",
    "available": "numberAvailable",
    "unavailable": "numberUnavailable",
}


def daemonset_of(body: Body) -> DaemonSet:
    """The DaemonSet; absent fields have the defaults of the API server."""
    metadata, spec, status = (
        body.get("metadata") or {},
        body.get("spec") or {},
        body.get("status") or {},
    )
    annotations = metadata.get("annotations") or {}
    selector = spec.get("selector") or {}
    limit = spec.get("revisionHistoryLimit")
    generation = str(annotations.get(names.TEMPLATE_GENERATION) or "")
    return DaemonSet(
        key=key_of({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata}),
        uid=str(metadata.get("uid") or ""),
        template=spec.get("template") or {},
        raw=body,
        selector=label_selector.of_label_selector(selector) or None,
        version=str(metadata.get("resourceVersion") or ""),
        generation=metadata.get("generation") or 0,
        deleting=metadata.get("deletionTimestamp") is not None,
        strategy=strategy(spec),
        min_ready_seconds=spec.get("minReadySeconds") or 0,
        history_limit=10 if limit is None else limit,
        template_generation=generation if label_selector.integer(generation) is not None else "",
        annotations=annotations,
        counts=_counts(status) if status else None,
        observed_generation=status.get("observedGeneration") or 0,
        collision_count=status.get("collisionCount"),
    )


def is_required_for_work(body: Body) -> bool:
    """Whether nodes with a startup taint wait for the DaemonSet."""
    return startup_taints.is_required((body.get("metadata") or {}).get("annotations") or {})


def changed_at(daemonset: DaemonSet) -> float | None:
    """The time of the last write of its spec (seconds since 1970), from managedFields; None if they
    lack it.

    https://kubernetes.io/docs/reference/using-api/server-side-apply/#managers
    """
    metadata = daemonset.raw.get("metadata") or {}
    written = (
        entry
        for entry in metadata.get("managedFields") or ()
        if "f:spec" in (entry.get("fieldsV1") or {})
    )
    texts = [metadata.get("creationTimestamp"), *(entry.get("time") for entry in written)]
    times = (timestamps.seconds(text) for text in texts if text)
    return max((time for time in times if time is not None), default=None)


def counters(counts: Counts) -> dict[str, int]:
    """The counters under the names of the API, including zeros."""
    return {theirs: getattr(counts, ours) for ours, theirs in COUNTERS.items()}


def _counts(status: Body) -> Counts:
    return Counts(
        **{
            ours: status.get(theirs) or 0
            for ours, theirs in COUNTERS.items()
            if ours != "unavailable"
        }
    )


class RolloutStatus(msgspec.Struct, frozen=True):
    """`message` states the missing part, or that the rollout is complete."""

    done: bool
    message: str


def rollout_status(daemonset: Body, target: str) -> RolloutStatus:
    """Whether it is rolled out, by the rule of `kubectl rollout status`, from its status only.

    staging/src/k8s.io/kubectl/pkg/polymorphichelpers/rollout_status.go; under OnDelete, where
    kubectl reports an error, it is done when every node has an available pod, old or new. With the
    name of a target, in a staged rollout, it is not rolled out before it has the target's template.
    """
    metadata, status = daemonset.get("metadata") or {}, daemonset.get("status") or {}
    if (status.get("observedGeneration") or 0) < (metadata.get("generation") or 0):
        return RolloutStatus(False, "the new specification was not observed yet")
    desired, updated = (
        status.get("desiredNumberScheduled") or 0,
        status.get("updatedNumberScheduled") or 0,
    )
    available = status.get("numberAvailable") or 0
    if target:
        return RolloutStatus(False, f"the staged rollout of {target} is in progress")
    if _strategy_type(daemonset) == "RollingUpdate" and updated < desired:
        return RolloutStatus(False, f"{updated} of {desired} pods are updated")
    if available < desired:
        return RolloutStatus(False, f"{available} of {desired} pods are available")
    return RolloutStatus(True, f"all {desired} pods are available")


def rollout_progress(daemonset: Body) -> RolloutProgress:
    """The nodes with an available pod, under RollingUpdate at most the updated ones; none before
    the specification is observed. A node whose new pod starts counts while others are available.
    """
    status = daemonset.get("status") or {}
    desired = status.get("desiredNumberScheduled") or 0
    done = min(desired, status.get("numberAvailable") or 0)
    generation = (daemonset.get("metadata") or {}).get("generation") or 0
    if (status.get("observedGeneration") or 0) < generation:
        return RolloutProgress(0, desired)
    if _strategy_type(daemonset) == "RollingUpdate":
        done = min(done, status.get("updatedNumberScheduled") or 0)
    return RolloutProgress(done, desired)


def _strategy_type(daemonset: Body) -> str:
    strategy = (daemonset.get("spec") or {}).get("updateStrategy") or {}
    return str(strategy.get("type") or "RollingUpdate")
