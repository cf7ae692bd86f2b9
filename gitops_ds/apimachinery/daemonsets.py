"""DaemonSets, parsed from bodies of the API server."""

from __future__ import annotations

from gitops_ds.apimachinery import int_or_percent, label_selector, timestamps
from gitops_ds.model import names, startup_taints
from gitops_ds.model.daemonset import Counts, DaemonSet
from gitops_ds.model.objects import Body, key_of

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
        strategy=int_or_percent.strategy(spec),
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
