"""Deletions as in an API server: grace periods, finalizers, propagation, responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gitops_ds.apimachinery import timestamps
from gitops_ds.model.cluster import Propagation
from gitops_ds.model.objects import Body, Resource

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


class DeleteOptions(msgspec.Struct, frozen=True):
    """The options of a delete: the expected uid, the propagation to dependents, and the grace
    period of a pod in seconds (None: that of the pod).
    """

    uid: str = ""
    propagation: Propagation = Propagation.BACKGROUND
    grace: int | None = None


DEFAULT = DeleteOptions()


def grace_seconds(pod: Body, requested: int | None) -> int:
    """The grace period; none for a pod without a node and for a finished one."""
    if not (pod.get("spec") or {}).get("nodeName") or (pod.get("status") or {}).get("phase") in (
        "Failed",
        "Succeeded",
    ):
        return 0
    return (
        int(pod["spec"].get("terminationGracePeriodSeconds", 30))
        if requested is None
        else requested
    )


def finalizers(metadata: Mapping[str, Any], propagation: Propagation) -> list[str]:
    """The finalizers of an object whose deletion begins."""
    kept = [f for f in metadata.get("finalizers") or () if f not in (FOREGROUND, ORPHAN)]
    match propagation:
        case Propagation.FOREGROUND:
            return [*kept, FOREGROUND]
        case Propagation.ORPHAN:
            return [*kept, ORPHAN]
        case Propagation.BACKGROUND:
            return kept


def ending(body: Body, when: float, grace: int, finalizers: list[str]) -> dict[str, Any]:
    """The object with its deletion timestamp; the generation is incremented once."""
    metadata = {
        **body["metadata"],
        "deletionTimestamp": timestamps.text(when),
        "deletionGracePeriodSeconds": grace,
    }
    if "generation" in metadata and "deletionTimestamp" not in body["metadata"]:
        metadata["generation"] += 1
    metadata.pop("finalizers", None)
    if finalizers:
        metadata["finalizers"] = finalizers
    return {**body, "metadata": metadata}


def success(resource: Resource, name: str, uid: str) -> Body:
    """The Status of a completed deletion."""
    details = {"name": name, "kind": resource.plural, "uid": uid}
    if resource.group:
        details["group"] = resource.group
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }
